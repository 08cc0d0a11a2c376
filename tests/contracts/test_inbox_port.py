"""What handlers rely on in every inbox: a table in either database, or Redis."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from headrace.store import open_store
from headrace.store.inbox import InboxPort
from headrace.store.redis_inbox import RedisInbox

Handle = Callable[..., set[str]]


@pytest.fixture(params=("sqlite", "postgres", "redis"))
def handle(request: pytest.FixtureRequest, new_database: Callable[[str], str]) -> Iterator[Handle]:
    """Handles messages as an execution does, and says which of them were new."""
    url = new_database("sqlite" if request.param == "redis" else request.param)
    with closing(open_store(url)) as store:
        store.create()
        inbox: InboxPort = store.inbox
        if request.param == "redis":
            server = request.getfixturevalue("redis_server")
            inbox = RedisInbox(server.url, prefix=uuid.uuid4().hex)

        def handle(*ids: str, consumer: str = "billing", fails: bool = False) -> set[str]:
            try:
                with store.begin() as tx:
                    new = inbox.claim(tx, consumer, ids, tx.now_ms)
                    if fails:
                        raise LookupError
            except LookupError:
                inbox.release(consumer, ids)
                return set()
            inbox.done(consumer, ids)
            return new

        yield handle
        if isinstance(inbox, RedisInbox):
            inbox.close()


def test_a_message_is_new_once_for_each_consumer(handle: Handle) -> None:
    assert handle("a", "b", "a") == {"a", "b"}
    assert handle("b", "c") == {"c"}
    assert handle("a", consumer="shipping") == {"a"}
    assert handle() == set()


def test_a_message_that_failed_is_new_again(handle: Handle) -> None:
    handle("a", "b", fails=True)
    assert handle("a") == {"a"}
    handle("a", "b", fails=True)
    assert handle("a", "b") == {"b"}


def test_any_text_is_an_id(handle: Handle) -> None:
    ids = {"", "ü/0/1", "x" * 5_000 + "1", "x" * 5_000 + "2", "a\0b", "{braces}", "🐟"}
    assert handle(*ids) == ids
    assert handle(*ids) == set()
