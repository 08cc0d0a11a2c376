"""The inbox in Redis, and what it does not promise."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.redis_server import RedisServer
from tests.waiting import wait_until

from headrace.store import StoreUnavailable
from headrace.store.redis_inbox import RedisInbox

Make = Callable[..., RedisInbox]


@pytest.fixture
def inbox(redis_server: RedisServer) -> Iterator[Make]:
    """Makes inboxes of processes of their own that share what they remember."""
    prefix = uuid.uuid4().hex
    made: list[RedisInbox] = []

    def make(**options: str | int) -> RedisInbox:
        made.append(RedisInbox(redis_server.url, prefix=prefix, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def claim(inbox: RedisInbox, *ids: str, consumer: str = "billing") -> set[str]:
    return inbox.claim(None, consumer, ids)


def test_what_is_done_is_not_new_again(inbox: Make) -> None:
    mine, other = inbox(), inbox()
    assert claim(mine, "a", "b", "a") == {"a", "b"}
    mine.done("billing", ["a", "b"])
    assert claim(other, "a", "c") == {"c"}
    assert claim(other, "a", consumer="shipping") == {"a"}
    assert claim(other) == set()
    assert mine.find("billing", "a") == "done"
    assert mine.find("billing", "c") == "in progress"
    assert mine.find("billing", "d") is None


def test_what_failed_is_new_again(inbox: Make) -> None:
    mine, other = inbox(), inbox()
    assert claim(mine, "a") == {"a"}
    # One's own is no obstacle: the group failed, and each message is now tried alone.
    assert claim(mine, "a") == {"a"}
    mine.release("billing", ["a"])
    assert claim(other, "a") == {"a"}


def test_what_another_process_has_in_hand_is_neither_skipped_nor_run(inbox: Make) -> None:
    mine, other = inbox(), inbox()
    claim(mine, "a")
    with pytest.raises(StoreUnavailable, match="another process"):
        claim(other, "b", "a")
    # It let go of the one it had got.
    assert claim(mine, "b") == {"b"}
    # A release is for one's own only.
    other.release("billing", ["a"])
    assert mine.find("billing", "a") == "in progress"


def test_what_another_thread_has_in_hand_is_neither_skipped_nor_run(inbox: Make) -> None:
    mine = inbox()
    with ThreadPoolExecutor(1) as another:
        assert another.submit(claim, mine, "a").result() == {"a"}
        with pytest.raises(StoreUnavailable, match="or thread"):
            claim(mine, "b", "a")
        # What did not get it lets go of it all the same.
        mine.release("billing", ["b", "a"])
        assert mine.find("billing", "a") == "in progress"
        another.submit(mine.release, "billing", ["a"]).result()
    assert claim(mine, "a") == {"a"}


def test_what_a_dead_process_had_in_hand_is_new_when_its_lease_ends(inbox: Make) -> None:
    dead, other = inbox(lease=50), inbox()
    claim(dead, "a")
    wait_until(lambda: dead.find("billing", "a") is None)
    assert claim(other, "a") == {"a"}


def test_ids_are_forgotten_after_their_time(inbox: Make) -> None:
    mine = inbox(keep=50)
    claim(mine, "a")
    mine.done("billing", ["a"])
    wait_until(lambda: mine.find("billing", "a") is None)
    assert claim(mine, "a") == {"a"}


def test_strange_ids_are_ids(inbox: Make) -> None:
    mine = inbox()
    ids = ("", "ü{x}", "x" * 5_000, "a\0b")
    assert claim(mine, *ids) == set(ids)
    mine.done("billing", ids)
    assert claim(mine, *ids) == set()


def test_without_redis_nothing_is_claimed_and_what_is_done_stays_done() -> None:
    with RedisServer() as server:
        inbox = RedisInbox(server.url)
        assert claim(inbox, "a") == {"a"}
        server.stop()
        with pytest.raises(StoreUnavailable, match="is Redis running"):
            claim(inbox, "b")
        # The effect is there: that Redis does not know it is no reason to fail.
        inbox.done("billing", ["a"])
        inbox.release("billing", ["a"])
        server.start()
        # It came back empty: the promise is weaker than a table's.
        assert claim(inbox, "a") == {"a"}
        inbox.close()
