"""Whole applications in a test: a broker, a store and a clock of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import App, Backoff, Retry, Transaction
from headrace.client.message import Message
from headrace.testing import run

DAY_MS = 86_400_000


def test_the_app_runs_on_the_test_s_own_parts_and_is_itself_again_after() -> None:
    settings = {"security.protocol": "SSL", "client.id": "shop"}
    app = App("nowhere.example:9092", store="sqlite:////nowhere/shop.db", settings=settings)
    seen: list[bytes] = []
    app.handler("orders")(seen_by(seen))
    for round_ in (b"first", b"second"):
        with run(app) as world:
            world.send("orders", round_)
            world.settle()
            assert app.bootstrap == world.broker.bootstrap
            assert app.settings == {"client.id": "shop"}
            folder = world.folder
            assert (folder / "store.db").exists()
        assert not folder.exists()
    assert seen == [b"first", b"second"]
    assert (app.bootstrap, app.store_url) == ("nowhere.example:9092", "sqlite:////nowhere/shop.db")
    assert (app.clock, app.settings) == (None, settings)


def seen_by(seen: list[bytes]) -> Callable[[bytes], None]:
    """A handler that notes what it was given."""

    def note(order: bytes) -> None:
        seen.append(order)

    return note


def test_an_app_without_a_store_has_none_here_either() -> None:
    app = App("nowhere.example:9092")
    seen: list[bytes] = []
    app.handler("orders")(seen_by(seen))
    with run(app) as world:
        world.send("orders", b"x")
        world.settle()
        assert app.context.store is None
    assert seen == [b"x"]


def test_retries_in_place_and_from_the_table_happen_at_their_virtual_times() -> None:
    app = App("nowhere.example:9092", store="sqlite://")
    tried_ms: list[int] = []

    @app.handler(
        "orders", retry=Retry(in_place=2, delay="1s", jitter=0, then=Backoff("1h", "1d", 2))
    )
    def fail(_order: bytes) -> None:
        tried_ms.append(world.clock.monotonic_ms())
        raise ValueError("never")

    with run(app) as world:
        world.send("orders", b"x")
        world.settle()
        assert tried_ms == [0]
        world.advance("10m")
        assert tried_ms == [0, 1000, 3000]
        world.advance("1d")
        assert tried_ms == [0, 1000, 3000, 3_603_000, 10_803_000]
        assert world.clock.monotonic_ms() == 600_000 + DAY_MS
        assert [letter.attempts for letter in world.dead_letters] == [5]
        assert [alarm.name for alarm in world.alarms] == ["dead-letter"]


def test_finish_goes_on_until_nothing_waits() -> None:
    app = App("nowhere.example:9092", store="sqlite://")

    @app.handler("orders", retry=Retry(then=Backoff("1d", "8d", 3)))
    def fail(_order: bytes) -> None:
        raise ValueError("never")

    with run(app) as world:
        world.send("orders", b"x")
        with pytest.raises(TimeoutError, match="still wait"):
            world.finish("2d")
        world.finish()
        assert len(world.dead_letters) == 1
        assert world.retries == []


def test_settling_follows_messages_from_handler_to_handler() -> None:
    app = App("nowhere.example:9092", store="sqlite://")
    ended: list[Message] = []

    @app.handler("a", order="none")
    def first(value: str, tx: Transaction) -> None:
        tx.send("b", value + "b")

    @app.handler("b", order="key")
    def second(value: str, tx: Transaction) -> None:
        tx.send("c", value + "c")

    @app.handler("c")
    def third(_value: str, message: Message) -> None:
        ended.append(message)

    with run(app, settings={"num.partitions": 3}) as world:
        for number in range(20):
            world.send("a", str(number), key=str(number))
        world.settle()
        assert sorted(message.value or b"" for message in ended) == sorted(
            b"%dbc" % number for number in range(20)
        )
        assert len(world.records("c")) == 20


def test_settling_waits_for_a_slow_handler() -> None:
    app = App("nowhere.example:9092")
    may_end = threading.Event()
    done: list[str] = []

    @app.handler("orders")
    def slow(order: str) -> None:
        may_end.wait(30)
        done.append(order)

    with run(app) as world:
        world.send("orders", "x")
        with pytest.raises(TimeoutError, match="slow runs messages"):
            world.settle(0.2)
        may_end.set()
        world.settle()
        assert done == ["x"]


def test_an_app_that_cannot_start_says_why() -> None:
    app = App("nowhere.example:9092")

    @app.handler("orders", retry=Retry(then=Backoff()))
    def bill(_order: str) -> None:
        pass

    with pytest.raises(Exception, match="needs a store"), run(app):
        raise AssertionError("it started")


def test_a_replay_of_all_that_fails_again_ends() -> None:
    app = App("nowhere.example:9092", store="sqlite://")

    @app.handler("orders")
    def fail(_order: bytes) -> None:
        raise ValueError("never")

    with run(app) as world:
        for number in range(5):
            world.send("orders", str(number))
        world.settle()
        assert world.replay() == 5
        world.settle()
        assert [letter.replays for letter in world.dead_letters] == [1] * 5


def test_a_store_of_the_test_s_choice_is_used(tmp_path: Path) -> None:
    app = App("nowhere.example:9092", store="postgresql://nowhere.example/shop")
    app.handler("orders")(seen_by([]))
    with run(app, store=f"sqlite:///{tmp_path / 'mine.db'}") as world:
        assert world.store.kind == "sqlite"
    assert (tmp_path / "mine.db").exists()
