"""What the offset table, the spill and leases must do in every database."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.handlers.endings import ends_with
from tests.handlers.manual_clock import ManualClock
from tests.waiting import WAIT_SECONDS

from headrace.client.message import Message
from headrace.store import Fenced, Store, open_store
from headrace.store.leases import drop_lease, take_lease
from headrace.store.offsets import StoredOffset

ORDERS = ("orders", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


# -- offsets ---------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_saved(store: Store) -> None:
    places = store.offsets.load("billing", [ORDERS, ("orders", 1)])
    assert places[ORDERS].next_offset is None
    with store.begin() as tx:
        store.offsets.save(tx, "billing", {ORDERS: places[ORDERS]._replace(next_offset=7)})
    again = store.offsets.load("billing", [ORDERS, ("orders", 1)])
    assert again[ORDERS].next_offset == 7
    assert again[ORDERS].epoch > places[ORDERS].epoch
    assert again["orders", 1].next_offset is None
    assert store.offsets.load("shipping", [ORDERS])[ORDERS].next_offset is None


def test_an_earlier_owner_is_fenced_and_all_it_wrote_is_undone(store: Store) -> None:
    old = store.offsets.load("billing", [ORDERS])[ORDERS]
    new = store.offsets.load("billing", [ORDERS])[ORDERS]
    with ends_with(Fenced, "orders/0"), store.begin() as tx:
        tx.send("receipts", b"1")
        store.offsets.save(tx, "billing", {ORDERS: StoredOffset(5, old.epoch)})
    assert store.outbox.latest() == []
    with store.begin() as tx:
        store.offsets.save(tx, "billing", {ORDERS: StoredOffset(3, new.epoch)})
    assert store.offsets.peek("billing") == {ORDERS: StoredOffset(3, new.epoch)}


def test_a_new_owner_waits_for_what_the_earlier_one_is_about_to_commit(store: Store) -> None:
    old = store.offsets.load("billing", [ORDERS])[ORDERS]
    loaded: list[StoredOffset] = []
    owner = threading.Thread(
        target=lambda: loaded.append(store.offsets.load("billing", [ORDERS])[ORDERS])
    )
    with store.begin() as tx:
        store.offsets.save(tx, "billing", {ORDERS: StoredOffset(9, old.epoch)})
        owner.start()
        owner.join(0.3)
        assert not loaded
    owner.join(WAIT_SECONDS)
    assert loaded[0].next_offset == 9


# -- the spill -------------------------------------------------------------------------------


def message(offset: int, value: bytes | None = b"v") -> Message:
    headers = [("trace", b"\xff\x00"), ("none", None), ("text", b"abc")]
    return Message("orders", 0, offset, b"k", value, headers, 123)


def spill(store: Store, *offsets: int) -> None:
    with store.begin() as tx:
        store.spill.put(tx, "bill", [message(offset) for offset in offsets])


def test_spilled_messages_come_back_whole_and_in_order(store: Store) -> None:
    with store.begin() as tx:
        store.spill.put(tx, "bill", [message(2), message(1, None)])
    taken = store.spill.take("bill", 10, owner="me")
    assert [spilled.message.offset for spilled in taken] == [2, 1]
    first, second = (spilled.message for spilled in taken)
    expected = message(2)
    for name in Message.__slots__:
        assert getattr(first, name) == getattr(expected, name)
    assert second.value is None


def test_a_message_is_spilled_once(store: Store) -> None:
    spill(store, 1, 2)
    spill(store, 2, 3)
    assert store.spill.count("bill") == 3
    assert store.spill.count("ship") == 0


def test_what_is_taken_is_nobody_elses_until_its_lease_ends(
    store: Store, clock: ManualClock
) -> None:
    spill(store, 1, 2, 3)
    first = store.spill.take("bill", 2, owner="me", lease_ms=1_000)
    assert [spilled.message.offset for spilled in first] == [1, 2]
    other = store.spill.take("bill", 2, owner="you", lease_ms=1_000)
    assert [spilled.message.offset for spilled in other] == [3]
    clock.pass_ms(1_000)
    again = store.spill.take("bill", 9, owner="you")
    assert [spilled.message.offset for spilled in again] == [1, 2, 3]


def test_what_is_done_is_gone_with_its_transaction(store: Store) -> None:
    spill(store, 1, 2)
    seqs = [spilled.seq for spilled in store.spill.take("bill", 2, owner="me")]
    with ends_with(LookupError), store.begin() as tx:
        store.spill.done(tx, seqs)
        raise LookupError
    assert store.spill.count("bill") == 2
    with store.begin() as tx:
        store.spill.done(tx, seqs[:1])
    store.spill.release(seqs[1:])
    assert [spilled.message.offset for spilled in store.spill.take("bill", 2, owner="you")] == [2]


# -- leases ----------------------------------------------------------------------------------


def take(store: Store, owner: str) -> bool:
    with store.begin() as tx:
        return take_lease(tx, "job", owner, 1_000)


def test_a_lease_has_one_owner_until_it_ends_or_is_dropped(
    store: Store, clock: ManualClock
) -> None:
    assert take(store, "a")
    assert not take(store, "b")
    clock.pass_ms(900)
    assert take(store, "a")
    clock.pass_ms(999)
    assert not take(store, "b")
    clock.pass_ms(1)
    assert take(store, "b")
    assert not take(store, "a")
    with store.begin() as tx:
        drop_lease(tx, "job", "a")
    assert not take(store, "a")
    with store.begin() as tx:
        drop_lease(tx, "job", "b")
    assert take(store, "a")
