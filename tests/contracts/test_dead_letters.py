"""The index of dead letters, the same on every database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.message import Message
from headrace.store import Store, open_store
from headrace.store.dead_letters import DEAD, NEW, REPLAYED, Letter
from headrace.store.failed_messages import MessageSelection
from headrace.store.fingerprints import Failure
from headrace.testing import VirtualClock

FAILURE = Failure("ValueError: no", "Traceback ...", "shop.bill", "abc123")
OTHER = Failure("KeyError: 1", "Traceback ...", "shop.ship", "def456")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(now_ms=1_000_000)


@pytest.fixture
def store(store_url: str, clock: VirtualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    yield store
    store.close()


def letter(
    store: Store,
    offset: int,
    *,
    id: str = "",
    failure: Failure = FAILURE,
    handler: str = "bill",
    partition: int = 0,
    state: str = DEAD,
) -> Letter:
    """Enter a dead letter."""
    headers = [("h", b"\xff\x00"), ("none", None)]
    message = Message(
        "orders", partition, offset, b"k", b"v\x00", headers, 5, id=id or f"id-{offset}"
    )
    entered = Letter(handler, message, 3, failure, "v1", state, store.clock.now_ms(), 0)
    with store.begin() as tx:
        store.dead_letters.put(tx, entered)
    return entered


def offsets(letters: list[Letter]) -> list[int]:
    return [found.message.offset for found in letters]


def test_a_letter_comes_back_whole(store: Store) -> None:
    entered = letter(store, 7)
    (found,) = store.dead_letters.find(MessageSelection())
    for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp_ms", "id"):
        assert getattr(found.message, name) == getattr(entered.message, name), name
    for name in ("handler", "attempts", "failure", "version", "state", "failed_ms", "replays"):
        assert getattr(found, name) == getattr(entered, name), name


def test_a_letter_entered_twice_is_there_once(store: Store) -> None:
    letter(store, 1)
    letter(store, 1)
    assert [found.replays for found in store.dead_letters.find(MessageSelection())] == [0]
    letter(store, 1, handler="ship")
    assert store.dead_letters.count(MessageSelection()) == 2


def test_a_replayed_letter_is_listed_only_on_request(store: Store) -> None:
    entered = letter(store, 1)
    store.dead_letters.change([entered], REPLAYED)
    assert store.dead_letters.find(MessageSelection()) == []
    (found,) = store.dead_letters.find(MessageSelection(), with_replayed=True)
    assert found.state == REPLAYED
    assert store.dead_letters.count(MessageSelection()) == 0
    assert store.dead_letters.count(MessageSelection(), with_replayed=True) == 1


def test_a_replay_that_failed_again_is_dead_again_whatever_is_marked_first(store: Store) -> None:
    first = letter(store, 1, id="x")
    # Sent again as offset 9, and failed there before the replay was marked.
    letter(store, 9, id="x", failure=OTHER, state=NEW)
    store.dead_letters.change([first], REPLAYED)
    (found,) = store.dead_letters.find(MessageSelection())
    assert (found.message.offset, found.state, found.replays) == (9, NEW, 1)
    assert found.failure == OTHER


def test_a_letter_sent_late_does_not_undo_a_replay(store: Store) -> None:
    entered = letter(store, 1, state=NEW)
    store.dead_letters.change([entered], REPLAYED)
    store.dead_letters.change([entered], DEAD)
    assert store.dead_letters.find(MessageSelection()) == []


def test_letters_left_behind_are_found_after_their_time(store: Store, clock: VirtualClock) -> None:
    letter(store, 1, state=NEW)
    letter(store, 2)
    letter(store, 3, state=NEW, handler="ship")
    clock.advance(1000)
    letter(store, 4, state=NEW)
    found = store.dead_letters.unpublished("bill", clock.now_ms() - 1000, 10)
    assert offsets(found) == [1]
    assert offsets(store.dead_letters.unpublished("bill", clock.now_ms(), 10)) == [1, 4]


def test_a_record_is_known_by_its_place_and_its_replay_is_another(store: Store) -> None:
    entered = letter(store, 1, id="x")
    replayed = Message("orders", 0, 9, b"k", b"v", id="x")
    with store.read() as tx:
        assert store.dead_letters.has(tx, "bill", entered.message)
        assert not store.dead_letters.has(tx, "bill", replayed)
        assert not store.dead_letters.has(tx, "ship", entered.message)
    letter(store, 2, partition=3)
    assert store.dead_letters.places("bill", "orders", [0]) == [(0, 1)]
    assert sorted(store.dead_letters.places("bill", "orders", [0, 3])) == [(0, 1), (3, 2)]


def test_letters_are_grouped_by_failure(store: Store, clock: VirtualClock) -> None:
    for offset in (1, 2):
        letter(store, offset)
        clock.advance(10)
    letter(store, 3, failure=OTHER)
    many, one = store.dead_letters.groups(MessageSelection())
    assert (many.fingerprint, many.count, many.error, many.place) == (
        "abc123",
        2,
        "ValueError: no",
        "shop.bill",
    )
    assert (many.first_ms, many.last_ms) == (1_000_000, 1_000_010)
    assert (one.fingerprint, one.count) == ("def456", 1)
    assert store.dead_letters.groups(MessageSelection(topic="other")) == []


def test_people_choose_by_id_handler_topic_or_fingerprint(store: Store) -> None:
    for offset in (1, 2, 3):
        letter(store, offset)
    letter(store, 4, handler="ship", failure=OTHER)
    assert offsets(store.dead_letters.find(MessageSelection(ids=["id-1", "id-4"]))) == [1, 4]
    assert offsets(store.dead_letters.find(MessageSelection(handler="bill"), limit=2)) == [1, 2]
    assert store.dead_letters.discard(MessageSelection(fingerprint="def456")) == 1
    assert store.dead_letters.discard(MessageSelection(ids=["id-1"], handler="ship")) == 0
    assert store.dead_letters.discard(MessageSelection(ids=["id-1"])) == 1
    assert offsets(store.dead_letters.find(MessageSelection())) == [2, 3]
    assert store.dead_letters.discard(MessageSelection()) == 2


def test_pages_show_every_letter_once_while_they_change(store: Store, clock: VirtualClock) -> None:
    for offset in range(10):
        letter(store, offset)
        if offset % 3 == 0:
            clock.advance(1)
    seen: list[int] = []
    for page in store.dead_letters.pages(MessageSelection(), 3):
        seen += offsets(page)
        store.dead_letters.change(page, REPLAYED)
        if len(seen) == 3:
            # It fails again at once, and must not be replayed forever.
            clock.advance(1)
            letter(store, 100, id=page[0].message.id)
    assert sorted(seen) == list(range(10))


@pytest.mark.parametrize("id", ["x" * 300, "a\0b"])
def test_a_letter_whose_id_does_not_fit_changes_its_state(store: Store, id: str) -> None:
    entered = letter(store, 7, id=id, state=NEW)
    store.dead_letters.change([entered], DEAD)
    assert store.dead_letters.unpublished("bill", store.clock.now_ms(), 10) == []
    assert [found.state for found in store.dead_letters.find(MessageSelection())] == [DEAD]
