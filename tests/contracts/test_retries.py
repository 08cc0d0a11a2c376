"""The retry table, the same on every database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.waiting import WAIT_SECONDS

from headrace.client.message import Message
from headrace.store import Store, open_store
from headrace.store.failed_messages import MessageSelection
from headrace.store.fingerprints import Failure
from headrace.store.retries import ParkedMessage, lane_digest
from headrace.testing import VirtualClock

FAILURE = Failure("ValueError: no", "Traceback ...", "shop.bill", "abc123")
LEASE_MS = 30_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=1_000_000)


@pytest.fixture
def store(store_url: str, clock: VirtualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


def message(offset: int, key: bytes | None = b"k", id: str = "") -> Message:
    headers = [("h", b"\xff\x00"), ("none", None)]
    return Message("orders", 0, offset, key, b"v\x00", headers, 5, id=id or f"id-{offset}")


def lane(key: bytes | None = b"k") -> str:
    return lane_digest("orders", 0, key)


def park(
    store: Store,
    parked: Message,
    *,
    in_lane: str | None = None,
    next_ms: int = 0,
    handler: str = "bill",
    attempts: int = 1,
) -> None:
    with store.begin() as tx:
        store.retries.park(tx, handler, parked, in_lane, FAILURE, attempts, next_ms)


def park_behind(store: Store, parked: Message, in_lane: str | None) -> bool:
    with store.begin() as tx:
        return store.retries.park_behind(tx, "bill", parked, in_lane)


def lease(store: Store, clock: VirtualClock, owner: str = "me") -> list[ParkedMessage]:
    return store.retries.lease("bill", owner, clock.now_ms(), LEASE_MS, 10)


def offsets(taken: list[ParkedMessage]) -> list[int]:
    return [parked.message.offset for parked in taken]


def remove(store: Store, parked: ParkedMessage) -> bool:
    with store.begin() as tx:
        return store.retries.remove(tx, parked)


def test_a_parked_message_comes_back_whole(store: Store, clock: VirtualClock) -> None:
    sent = message(7)
    park(store, sent, next_ms=clock.now_ms(), attempts=3)
    (parked,) = lease(store, clock)
    kept = parked.message
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms", "id"):
        assert getattr(kept, name) == getattr(sent, name), name
    assert kept.attempt == 4
    assert (parked.attempts, parked.failure, parked.owner) == (3, FAILURE, "me")
    assert parked.parked_ms == clock.now_ms()


def test_a_message_is_due_at_its_time_and_not_before(store: Store, clock: VirtualClock) -> None:
    park(store, message(1), next_ms=clock.now_ms() + 500)
    assert store.retries.next_due_ms("bill") == clock.now_ms() + 500
    clock.advance(499)
    assert lease(store, clock) == []
    clock.advance(1)
    assert offsets(lease(store, clock)) == [1]


def test_a_message_parked_twice_is_there_once_and_keeps_its_time(
    store: Store, clock: VirtualClock
) -> None:
    park(store, message(1), next_ms=clock.now_ms() + 500, attempts=4)
    park(store, message(1), next_ms=clock.now_ms() + 9_000)
    (parked,) = store.retries.find(MessageSelection())
    assert (parked.attempts, parked.next_ms) == (4, clock.now_ms() + 500)


def test_handlers_do_not_see_each_others_messages(store: Store, clock: VirtualClock) -> None:
    park(store, message(1), handler="bill")
    park(store, message(1), handler="ship")
    assert offsets(lease(store, clock)) == [1]
    assert store.retries.count(MessageSelection(handler="ship")) == 1
    assert store.retries.next_due_ms("nobody") is None


def test_only_the_head_of_a_lane_is_due(store: Store, clock: VirtualClock) -> None:
    park(store, message(5), in_lane=lane())
    assert park_behind(store, message(6), lane())
    assert park_behind(store, message(7), lane())
    park(store, message(8, b"other"), in_lane=lane(b"other"))
    for expected in (5, 6, 7):
        taken = lease(store, clock)
        assert offsets(taken) == ([expected, 8] if expected == 5 else [expected])
        for parked in taken:
            assert remove(store, parked)
    assert lease(store, clock) == []


def test_what_is_behind_a_leased_head_is_not_due(store: Store, clock: VirtualClock) -> None:
    park(store, message(5), in_lane=lane())
    assert park_behind(store, message(6), lane())
    assert offsets(lease(store, clock, "one")) == [5]
    assert lease(store, clock, "two") == []


def test_an_earlier_message_that_comes_again_is_the_head(store: Store, clock: VirtualClock) -> None:
    park(store, message(6), in_lane=lane())
    assert park_behind(store, message(5), lane())
    assert offsets(lease(store, clock)) == [5]


def test_messages_without_a_lane_are_all_due(store: Store, clock: VirtualClock) -> None:
    for offset in (1, 2, 3):
        park(store, message(offset))
    assert sorted(offsets(lease(store, clock))) == [1, 2, 3]


def test_nothing_is_parked_behind_a_lane_that_is_free(store: Store) -> None:
    assert not park_behind(store, message(6), lane())
    assert not park_behind(store, message(6), None)
    assert store.retries.count(MessageSelection()) == 0


def test_a_message_that_is_parked_itself_is_known_without_a_lane(store: Store) -> None:
    park(store, message(6))
    assert park_behind(store, message(6), None)
    assert store.retries.count(MessageSelection()) == 1


def test_a_lease_ends_and_its_first_owner_is_fenced(store: Store, clock: VirtualClock) -> None:
    park(store, message(1))
    (late,) = lease(store, clock, "late")
    assert lease(store, clock, "next") == []
    assert store.retries.next_due_ms("bill") == clock.now_ms() + LEASE_MS
    clock.advance(LEASE_MS)
    (taken,) = lease(store, clock, "next")
    assert not remove(store, late)
    with store.begin() as tx:
        assert not store.retries.postpone(tx, late, FAILURE, 0)
    assert remove(store, taken)


def test_a_leased_message_does_not_hide_one_that_is_due_before_its_lease_ends(
    store: Store, clock: VirtualClock
) -> None:
    park(store, message(1, b"one"), in_lane=lane(b"one"))
    assert offsets(lease(store, clock)) == [1]
    park(store, message(2, b"two"), in_lane=lane(b"two"), next_ms=clock.now_ms() + 500)
    assert store.retries.next_due_ms("bill") == clock.now_ms() + 500
    park(store, message(3, b"three"), in_lane=lane(b"three"), next_ms=clock.now_ms() + 400)
    assert store.retries.next_due_ms("bill") == clock.now_ms() + 400
    clock.advance(LEASE_MS)
    assert store.retries.next_due_ms("bill") == clock.now_ms() - LEASE_MS + 400


def test_a_lease_that_ends_first_is_due_first(store: Store, clock: VirtualClock) -> None:
    park(store, message(1, b"one"), in_lane=lane(b"one"))
    lease(store, clock)
    park(store, message(2, b"two"), in_lane=lane(b"two"), next_ms=clock.now_ms() + 2 * LEASE_MS)
    assert store.retries.next_due_ms("bill") == clock.now_ms() + LEASE_MS


def test_a_renewed_lease_goes_on_and_a_released_one_ends(store: Store, clock: VirtualClock) -> None:
    park(store, message(1))
    lease(store, clock, "one")
    store.retries.renew("bill", "one", clock.now_ms() + 2 * LEASE_MS)
    clock.advance(LEASE_MS)
    assert lease(store, clock, "two") == []
    store.retries.release("bill", "one")
    assert offsets(lease(store, clock, "two")) == [1]


def test_a_failed_try_is_counted_with_its_error_and_next_time(
    store: Store, clock: VirtualClock
) -> None:
    park(store, message(1), attempts=2)
    (parked,) = lease(store, clock)
    newer = Failure("KeyError: 1", "Traceback 2", "shop.ship", "def456")
    with store.begin() as tx:
        assert store.retries.postpone(tx, parked, newer, clock.now_ms() + 100)
    (found,) = store.retries.find(MessageSelection(fingerprint="def456"))
    assert (found.attempts, found.failure, found.owner) == (3, newer, None)
    clock.advance(100)
    assert offsets(lease(store, clock)) == [1]


def test_a_removal_is_undone_with_its_transaction(store: Store, clock: VirtualClock) -> None:
    park(store, message(1))
    (parked,) = lease(store, clock)

    def fail_late() -> None:
        with store.begin() as tx:
            assert store.retries.remove(tx, parked)
            raise RuntimeError("the handler's transaction failed")

    with pytest.raises(RuntimeError):
        fail_late()
    assert store.retries.count(MessageSelection()) == 1


def test_many_owners_share_the_work_without_taking_one_twice(
    store: Store, clock: VirtualClock
) -> None:
    for offset in range(60):
        park(store, message(offset, b"%d" % offset), in_lane=lane(b"%d" % offset))
    taken: list[int] = []
    together = threading.Barrier(4)

    def work(owner: str) -> None:
        together.wait()
        while found := store.retries.lease("bill", owner, clock.now_ms(), LEASE_MS, 5):
            taken.extend(offsets(found))

    threads = [threading.Thread(target=work, args=(f"owner-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A row that another owner is just looking at is passed over, so some may be left.
    taken.extend(offsets(store.retries.lease("bill", "last", clock.now_ms(), LEASE_MS, 60)))
    assert sorted(taken) == list(range(60))


def test_parking_behind_a_head_that_is_just_removed_is_never_forgotten(
    store: Store, clock: VirtualClock
) -> None:
    together = threading.Barrier(2)
    pool = ThreadPoolExecutor(1)

    def park_behind_together(next_: Message) -> bool:
        together.wait()
        return park_behind(store, next_, lane())

    for round_ in range(20):
        head = message(2 * round_)
        park(store, head, in_lane=lane())
        (parked,) = lease(store, clock)
        behind = pool.submit(park_behind_together, message(2 * round_ + 1))
        together.wait()
        assert remove(store, parked)
        # Either the lane was free and the caller runs the message, or it is due by itself.
        is_parked = behind.result(WAIT_SECONDS)
        due = lease(store, clock)
        assert offsets(due) == ([2 * round_ + 1] if is_parked else [])
        for left in due:
            assert remove(store, left)
    pool.shutdown()


def test_places_name_what_is_parked_of_partitions(store: Store) -> None:
    park(store, message(1, b"a"), in_lane=lane(b"a"))
    assert park_behind(store, message(4, b"a"), lane(b"a"))
    park(store, message(2, None))
    park(store, message(3, None))
    other = Message("orders", 3, 9, b"z", b"", id="z")
    park(store, other)
    assert sorted(store.retries.places("bill", "orders", [0, 1]), key=str) == [
        (0, 1, b"a"),
        (0, 2, None),
        (0, 3, None),
    ]
    assert store.retries.places("bill", "orders", [3]) == [(3, 9, b"z")]
    assert store.retries.places("bill", "other", [0]) == []


def test_people_choose_by_id_handler_topic_or_fingerprint(
    store: Store, clock: VirtualClock
) -> None:
    later_ms = clock.now_ms() + 1000
    for offset in (1, 2, 3):
        park(store, message(offset), in_lane=lane(), next_ms=later_ms)
    park(store, message(4), handler="ship", next_ms=later_ms)
    assert [row.is_head for row in store.retries.find(MessageSelection(handler="bill"))] == [
        True,
        False,
        False,
    ]
    assert store.retries.count(MessageSelection(ids=["id-1", "id-4"])) == 2
    assert store.retries.count(MessageSelection(topic="orders", fingerprint="abc123")) == 4
    assert store.retries.count(MessageSelection(topic="nothing")) == 0
    assert store.retries.make_due(MessageSelection(ids=["id-1"]), clock.now_ms()) == 1
    assert offsets(lease(store, clock)) == [1]
    assert store.retries.drop(MessageSelection(ids=["id-1"])) == 1
    assert store.retries.drop(MessageSelection(handler="bill")) == 2
    assert store.retries.count(MessageSelection()) == 1


def test_dropping_a_message_that_is_being_tried_undoes_the_try(
    store: Store, clock: VirtualClock
) -> None:
    park(store, message(1))
    (parked,) = lease(store, clock)
    assert store.retries.drop(MessageSelection(ids=["id-1"])) == 1
    assert not remove(store, parked)


def test_ids_and_keys_of_any_size_and_kind_are_kept(store: Store, clock: VirtualClock) -> None:
    odd = message(1, b"\x00\xff" * 5_000, id="zero \0 " + "x" * 5_000)
    park(store, odd, in_lane=lane(odd.key))
    assert park_behind(store, odd, lane(odd.key))
    (parked,) = lease(store, clock)
    assert parked.message.key == odd.key
    assert remove(store, parked)
