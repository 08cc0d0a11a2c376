"""What every inbox in a database must do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.handlers.endings import ends_with
from tests.handlers.manual_clock import ManualClock
from tests.waiting import WAIT_SECONDS

from headrace.store import Store, open_store
from headrace.store.inbox import InboxRow


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


def claim(store: Store, consumer: str, *ids: str, now_ms: int = 1) -> set[str]:
    with store.begin() as tx:
        return store.inbox.claim(tx, consumer, ids, now_ms)


def test_an_id_is_new_once_for_each_consumer(store: Store) -> None:
    assert claim(store, "billing", "a", "b") == {"a", "b"}
    assert claim(store, "billing", "b", "c") == {"c"}
    assert claim(store, "shipping", "a") == {"a"}
    assert claim(store, "billing") == set()


def test_an_id_twice_in_one_claim_is_new_once(store: Store) -> None:
    assert claim(store, "billing", "a", "a") == {"a"}
    assert claim(store, "billing", "a") == set()


def test_a_rolled_back_claim_was_never_made(store: Store) -> None:
    with ends_with(LookupError), store.begin() as tx:
        assert store.inbox.claim(tx, "billing", ["a"], 1) == {"a"}
        raise LookupError
    assert claim(store, "billing", "a") == {"a"}


def test_the_transaction_itself_sees_its_claims(store: Store) -> None:
    with store.begin() as tx:
        assert store.inbox.claim(tx, "billing", ["a"], 1) == {"a"}
        assert store.inbox.claim(tx, "billing", ["a", "b"], 1) == {"b"}


@pytest.mark.parametrize("commits", [True, False])
def test_a_claim_waits_for_another_that_is_open(store: Store, commits: bool) -> None:
    claimed: list[set[str]] = []
    other = threading.Thread(target=lambda: claimed.append(claim(store, "billing", "b", "a")))

    def first() -> None:
        with store.begin() as tx:
            assert store.inbox.claim(tx, "billing", ["a"], 1) == {"a"}
            other.start()
            other.join(0.3)
            assert not claimed
            if not commits:
                raise LookupError

    if commits:
        first()
    else:
        with pytest.raises(LookupError):
            first()
    other.join(WAIT_SECONDS)
    assert claimed == [{"b"} if commits else {"a", "b"}]


@pytest.mark.parametrize("id", ["", "ü/0/1", "x" * 5_000, "a\0b", '"quoted", [', "🐟"])
def test_strange_ids_are_ids(store: Store, id: str) -> None:
    assert claim(store, "billing", id, "other") == {id, "other"}
    assert claim(store, "billing", id) == set()
    assert len(store.inbox.find(id)) == 1


def test_long_ids_that_differ_at_their_end_differ(store: Store) -> None:
    first, second = "x" * 5_000 + "1", "x" * 5_000 + "2"
    assert claim(store, "billing", first, second) == {first, second}


def test_finding_says_who_and_when(store: Store) -> None:
    claim(store, "shipping", "a", now_ms=20)
    claim(store, "billing", "a", now_ms=10)
    assert store.inbox.find("a") == [InboxRow("a", "billing", 10), InboxRow("a", "shipping", 20)]
    assert store.inbox.find("b") == []


def test_cleaning_forgets_the_oldest_first_and_not_too_many(store: Store) -> None:
    for number in range(5):
        claim(store, "billing", str(number), now_ms=number)
    assert store.inbox.clean(4, limit=3) == 3
    assert store.inbox.clean(4, limit=3) == 1
    assert store.inbox.clean(4, limit=3) == 0
    assert [number for number in range(5) if store.inbox.find(str(number))] == [4]
