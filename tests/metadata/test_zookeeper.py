"""The ZooKeeper store when servers freeze, die and come back; the contract suite has the rest."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator

import pytest
from tests.waiting import WAIT_SECONDS, wait_until_async
from tests.zookeeper import ZooKeeper

from headrace.metadata import zookeeper as module
from headrace.metadata.store import (
    Create,
    MetadataEntry,
    SessionExpiredError,
    Set,
    StoreUnavailableError,
)
from headrace.metadata.zookeeper import ZooKeeperStore, parse_address

SESSION_MS = 1_000


@pytest.fixture
def server() -> Iterator[ZooKeeper]:
    """A server that the test may kill."""
    with ZooKeeper() as server:
        yield server


def with_store(server: ZooKeeper, scenario: Callable[[ZooKeeperStore], Awaitable[None]]) -> None:
    async def run() -> None:
        store = await ZooKeeperStore.open(f"zookeeper://{server.address}/headrace")
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_SECONDS))


def test_an_address_names_hosts_and_a_chroot() -> None:
    assert parse_address("zookeeper://a:2181,b:2181/kafka/one") == ("a:2181,b:2181", "/kafka/one")
    assert parse_address("zookeeper://a:2181") == ("a:2181", "")
    assert parse_address("zookeeper://a:2181/") == ("a:2181", "")


@pytest.mark.parametrize(
    "address", ["a:2181", "sqlite:///x", "zookeeper:///x", "zookeeper://a:1//b", ""]
)
def test_another_address_is_refused_with_what_to_write(address: str) -> None:
    with pytest.raises(ValueError, match=r"zookeeper://HOST:PORT|is not a path"):
        parse_address(address)


def test_nobody_at_the_address_is_said_in_time() -> None:
    async def run() -> None:
        with pytest.raises(StoreUnavailableError, match=r"no ZooKeeper answers at 127\.0\.0\.1:1 "):
            await ZooKeeperStore.open("zookeeper://127.0.0.1:1/x", connect_seconds=0.2)

    asyncio.run(run())


def test_a_watch_and_the_data_outlive_a_killed_server(server: ZooKeeper) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        await store.multi([Create("/a", b"kept")])
        watch = await store.watch("/a")
        server.kill()
        await asyncio.to_thread(server.start)
        # Something may have changed meanwhile, so the watch returns once.
        await watch.changed()
        assert await store.read("/a") == MetadataEntry(b"kept", 0)
        await store.multi([Set("/a", b"new")])
        await watch.changed()

    with_store(server, scenario)


def test_a_session_counts_as_over_before_servers_can_give_its_entries_away(
    server: ZooKeeper,
) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        session = await store.session(SESSION_MS)
        await store.multi([Create("/me", b"", session)])
        server.kill(signal.SIGSTOP)
        try:
            await wait_until_async(lambda: session.expired, "the session is over")
            with pytest.raises(SessionExpiredError):
                await store.multi([Create("/again", b"", session)])
        finally:
            server.kill(signal.SIGCONT)
        # Servers that were frozen may still know the session: it never comes back all the same.
        assert await store.read("/again") is None
        assert session.expired

    with_store(server, scenario)


def test_a_frozen_server_is_unavailable_and_not_waited_for_forever(
    server: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: ZooKeeperStore) -> None:
        server.kill(signal.SIGSTOP)
        try:
            monkeypatch.setattr(module, "CALL_SECONDS", 0.2)
            with pytest.raises(StoreUnavailableError, match=r"not answered for 0\.2 s"):
                await store.read("/a")
        finally:
            monkeypatch.undo()
            server.kill(signal.SIGCONT)
        assert await store.read("/a") is None

    with_store(server, scenario)
