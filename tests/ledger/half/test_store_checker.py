"""Half messages tied to transactions of the store: the first to join wins, on both databases."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest
from tests.waiting import WAIT_SECONDS

from headrace import App
from headrace.client.message import Message
from headrace.handlers.context import AppContext
from headrace.handlers.half.checkers import (
    KNOWN_MS,
    HalfGivenUp,
    has_committed,
    join,
)
from headrace.store import open_store

LOOK_SECONDS = 0.3


@pytest.fixture
def context(store_url: str) -> Iterator[AppContext]:
    store = open_store(store_url)
    store.create()
    yield AppContext(bootstrap="127.0.0.1:1", store=store)
    store.close()


def question(context: AppContext, id: str = "a", age_ms: int = 0) -> Message:
    prepared_ms = context.clock.now_ms() - age_ms
    headers = [("headrace-prepared-at", str(prepared_ms).encode())]
    return Message("headrace.half.check.shop", 0, 0, None, b"", headers, 0, id)


def test_a_transaction_that_joined_and_committed_has_happened(context: AppContext) -> None:
    store = context.need_store("this test")
    with store.begin() as tx:
        join(store, tx, "a")
    for _ in range(2):
        assert has_committed(context, question(context)) is True


def test_a_transaction_that_rolled_back_has_not_and_never_will(context: AppContext) -> None:
    store = context.need_store("this test")
    with contextlib.suppress(LookupError), store.begin() as tx:
        join(store, tx, "a")
        raise LookupError
    for _ in range(2):
        assert has_committed(context, question(context)) is False
    with pytest.raises(HalfGivenUp), store.begin() as tx:
        join(store, tx, "a")
    assert has_committed(context, question(context)) is False


def test_an_app_makes_its_store_the_checker_of_a_group(store_url: str) -> None:
    app = App("127.0.0.1:1", store=store_url)
    app.half_store_checker("shop")
    store = app.context.need_store("this test")
    store.create()
    with store.begin() as tx:
        join(store, tx, "a")
    checker = app.half_checkers["shop"]
    assert checker.ask(app.context, question(app.context)) is True
    assert checker.ask(app.context, question(app.context, "b")) is False
    store.close()


def test_ids_do_not_know_each_other(context: AppContext) -> None:
    store = context.need_store("this test")
    with store.begin() as tx:
        join(store, tx, "a")
    assert has_committed(context, question(context, "b")) is False
    assert has_committed(context, question(context, "a")) is True


def test_the_checker_waits_for_a_transaction_that_is_still_open(context: AppContext) -> None:
    store = context.need_store("this test")
    answers: list[bool | None] = []
    begun, asked = threading.Event(), threading.Event()

    def check() -> None:
        begun.wait(WAIT_SECONDS)
        asked.set()
        answers.append(has_committed(context, question(context)))

    thread = threading.Thread(target=check)
    thread.start()
    with store.begin() as tx:
        join(store, tx, "a")
        begun.set()
        assert asked.wait(WAIT_SECONDS)
        # Time enough for one that does not wait.
        thread.join(LOOK_SECONDS)
        assert answers == []
    thread.join(WAIT_SECONDS)
    assert answers == [True]


def test_what_the_inbox_may_have_forgotten_is_for_a_person(context: AppContext) -> None:
    assert has_committed(context, question(context, age_ms=KNOWN_MS + 60_000)) is None
