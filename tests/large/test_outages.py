"""A place of bodies that goes away, at any step, makes readers wait and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from tests.large.sending import SIZE, noise, small_large
from tests.waiting import wait_until

from headrace import App, Message
from headrace.large.body_store import new_name, open_body_store
from headrace.large.errors import BodyMissing, BodyStoreUnavailable
from headrace.store.failed_messages import MessageSelection
from headrace.telemetry.alarms import Alarm
from headrace.testing import BrokerThread

NAME = new_name("c1", "films", 1_700_000_000_000, "0" * 32)


class EndpointConnectionError(Exception):
    """As the libraries of object stores have them: no OSError at all."""


class RemoteFiles(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files of a service that is asked with each read, and may not answer."""

    protocol = "remote"
    failures: ClassVar[list[Exception]] = []

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        file = super().open(path, mode, **options)
        if mode == "rb":
            file.seek(0)
            read = file.read
            file.read = lambda size: _answer(lambda: read(size))
        return file


def _answer(question: Any) -> Any:
    if RemoteFiles.failures:
        raise RemoteFiles.failures.pop(0)
    return question()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    fsspec.register_implementation("remote", RemoteFiles, clobber=True)
    yield f"remote://{tmp_path.name}"
    RemoteFiles.failures.clear()


@pytest.mark.parametrize("error", [EndpointConnectionError("no route"), OSError("reset")])
def test_an_outage_in_the_middle_of_a_body_is_one(remote: str, error: Exception) -> None:
    claims = open_body_store(remote)
    claims.write(NAME, iter([b"a" * 600_000]))
    with claims.open(NAME) as file:
        assert file.read(10) == b"a" * 10
        RemoteFiles.failures = [error]
        with pytest.raises(BodyStoreUnavailable, match=str(error)):
            file.read()
    RemoteFiles.failures = [FileNotFoundError("collected meanwhile")]
    with claims.open(NAME) as file, pytest.raises(BodyMissing):
        file.read()


def test_a_handler_waits_for_the_rest_of_its_body(
    remote: str, broker: BrokerThread, tmp_path: Path
) -> None:
    large = small_large(way="claim", claims=remote)
    app = App(broker.bootstrap, store=f"sqlite:///{tmp_path / 'store.db'}", large=large)
    film = noise(40 * SIZE)
    alarms: list[Alarm] = []
    app.on_alarm(alarms.append)
    begun: list[bytes] = []
    found: list[bytes] = []

    @app.handler("films", group="g")
    def take(message: Message) -> None:
        with message.stream() as stream:
            begun.append(stream.read(1))
            if len(begun) <= 3:
                RemoteFiles.failures = [EndpointConnectionError("no route")]
            found.append(begun[-1] + stream.read())

    with app:
        app.send("films", film).result(30)
        wait_until(lambda: found)
        assert app.context.store is not None
        assert app.context.store.dead_letters.find(MessageSelection()) == []
    assert found == [film]
    assert {alarm.name for alarm in alarms} == {"handler-waits"}
