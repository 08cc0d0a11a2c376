"""Work for partitions that were taken away stops, and what was put away keeps its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.handlers.records import FakeRecord
from tests.handlers.stage import Stage

from headrace.client.message import Message
from headrace.errors import Unavailable
from headrace.handlers.context import AppContext
from headrace.handlers.execution import Execution, IsOpen, Position, Positions, Revoked
from headrace.handlers.lanes import Track
from headrace.handlers.outputs import KafkaTransactions, Output
from headrace.handlers.policies import Backoff, Retry
from headrace.handlers.runner import Runner
from headrace.handlers.scheduler import ChunkResult
from headrace.handlers.spec import make_spec
from headrace.handlers.spilling import Spilling
from headrace.store import Store, StoreUnavailable, Transaction, open_store
from headrace.store.failed_messages import MessageSelection

LATER = Retry(then=Backoff("1h", "1d"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/shop.db")
    store.create()
    yield store
    store.close()


@pytest.mark.parametrize("once", ["offsets", "transaction"])
def test_what_is_parked_behind_another_has_its_place_kept(once: str, store: Store) -> None:
    kept: list[Positions] = []

    def run(messages: Sequence[Message], at: Positions, is_open: IsOpen) -> None:
        assert not messages
        kept.append(at)

    def never(number: int) -> None:
        raise AssertionError(number)

    stage = Stage(never, store, run if once == "transaction" else None, once=once, retry=LATER)
    epoch = store.offsets.load("g", [("t", 0)])["t", 0].epoch if once == "offsets" else 0
    stage.failures.give_up(Message("t", 0, 4, b"4", b"4"), ValueError("x"), 1)
    chunk = stage.take((Track("t", 0, epoch), [5, 6, 7]))
    assert stage.chunks.run(chunk) == ChunkResult(3)
    if once == "offsets":
        assert store.offsets.peek("g")["t", 0].next_offset == 8
    else:
        assert kept == [{("t", 0): (8, 0, 5)}]


def test_a_commit_whose_answer_was_lost_has_no_second_effect(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.begin() as tx:
        tx.execute("CREATE TABLE effects (number INTEGER)")

    def work(number: int, tx: Transaction) -> None:
        tx.execute("INSERT INTO effects VALUES (:number)", {"number": number})

    stage = Stage(work, store, once="offsets")
    track = Track("t", 0, store.offsets.load("g", [("t", 0)])["t", 0].epoch)
    commit = Transaction._commit

    def lost(tx: Transaction) -> None:
        commit(tx)
        monkeypatch.undo()
        raise StoreUnavailable("the connection was lost")

    monkeypatch.setattr(Transaction, "_commit", lost)
    chunk = stage.take((track, [5, 6]))
    result = stage.chunks.run(chunk)
    assert result.done == 0
    assert result.retry_at_ms is not None
    # When they come again, another one has come behind them.
    stage.scheduler.settle(chunk, ChunkResult(0))
    chunk = stage.take((track, [7]))
    assert stage.chunks.run(chunk) == ChunkResult(3)
    with store.read() as tx:
        assert list(tx.execute("SELECT number FROM effects").scalars()) == [5, 6, 7]
    assert store.offsets.peek("g")["t", 0].next_offset == 8


def test_the_places_of_a_topic_recreated_go_back(store: Store) -> None:
    def work(number: int) -> None: ...

    stage = Stage(work, store, once="offsets")
    epoch = store.offsets.load("g", [("t", 0)])["t", 0].epoch
    assert stage.chunks.run(stage.take((Track("t", 0, epoch), [500]))) == ChunkResult(1)
    place = store.offsets.load("g", [("t", 0)])["t", 0]
    again = Track("t", 0, place.epoch, place.next_offset or 0)
    assert stage.chunks.run(stage.take((again, [0, 1]))) == ChunkResult(2)
    assert store.offsets.peek("g")["t", 0].next_offset == 2


@pytest.mark.parametrize("kind", ["plain", "message", "group", "batch", "plain batch", "async"])
def test_nothing_is_run_for_a_partition_that_was_taken_away(kind: str, store: Store) -> None:
    ran: list[int] = []
    kept, gone = Track("t", 0), Track("t", 1)

    def see(number: int) -> None:
        if number == 1:
            stage.scheduler.close([gone], 0)
        ran.append(number)

    def plain(number: int) -> None:
        see(number)

    def message(number: int, message: Message) -> None:
        see(number)

    def group(number: int, tx: Transaction) -> None:
        see(number)
        if number == 1 and ran.count(1) == 1:
            raise ValueError("one by one")

    def batch(numbers: list[int], messages: list[Message]) -> None:
        see(numbers[0])
        if len(numbers) > 1:
            raise ValueError("halves")

    def plain_batch(numbers: list[int]) -> None:
        see(numbers[0])
        if len(numbers) > 1:
            raise ValueError("halves")

    async def awaits(number: int) -> None:
        see(number)

    functions = {
        "plain": plain, "message": message, "group": group, "batch": batch,
        "plain batch": plain_batch, "async": awaits,
    }  # fmt: skip
    size = 10 if "batch" in kind else 0
    stage = Stage(functions[kind], store, order="partition", batch=size, retry=LATER)
    chunk = stage.take((kept, [1]), (gone, [12, 13]))
    assert len(chunk) == 3
    if kind == "async":
        result = asyncio.run(stage.chunks.run_async(chunk))
    else:
        result = stage.chunks.run(chunk)
    assert result == ChunkResult(1)
    assert set(ran) == {1}
    stage.scheduler.settle(chunk, result)
    assert stage.scheduler.lanes.messages == 0


def test_a_transaction_of_a_partition_that_was_taken_away_is_not_begun(store: Store) -> None:
    def work(number: int, out: Output) -> None: ...

    spec = make_spec(work, ["t"], group="g", once="transaction")
    context = AppContext(bootstrap="127.0.0.1:1", store=store, given={"log_level": 0})
    transactions = KafkaTransactions(Execution(spec, context), context)
    with pytest.raises(Revoked):
        transactions.run(
            [Message("t", 0, 1, None, b"1")], {("t", 0): Position(2, 0, 1)}, lambda: False
        )
    with pytest.raises(Unavailable, match="no producer yet"):
        Runner(spec, context).execute_one(Message("t", 0, 1, None, b"1"), lambda _: None)


@pytest.mark.parametrize("id", [None, 5, "", "\ud800"])
def test_a_message_without_a_fit_id_is_a_dead_letter(id: Any, store: Store) -> None:
    ran: list[int] = []

    def work(number: int, tx: Transaction) -> None:
        ran.append(number)

    stage = Stage(
        work, store, order="none", id=lambda message: id if message.offset == 2 else "fine"
    )
    assert stage.chunks.run(stage.take((Track("t", 0), [2, 3]))) == ChunkResult(2)
    assert ran == [3]
    (letter,) = store.dead_letters.find(MessageSelection())
    assert "MissingId" in letter.failure.error or "no id" in letter.failure.error


def test_a_message_that_cannot_be_parked_is_buried(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(number: int) -> None:
        raise ValueError("as planned")

    def refuse(*_: object) -> None:
        raise TypeError("a row like this cannot be written")

    stage = Stage(work, store, order="none", retry=LATER)
    monkeypatch.setattr(stage.failures, "give_up", refuse)
    assert stage.chunks.run(stage.take((Track("t", 0), [2]))) == ChunkResult(1)
    assert len(store.dead_letters.find(MessageSelection())) == 1


def test_a_handler_that_exits_does_not_end_the_spill(store: Store) -> None:
    def work(number: int) -> None:
        raise SystemExit(1)

    stage = Stage(work, store, order="none", pressure="spill")
    spilling = Spilling(stage.scheduler, stage.execution, stage.failures, stage.context)
    spilling.put([FakeRecord(0, 1, None)])
    assert spilling._run_some() == 1
    assert store.spill.count("h") == 0
    assert len(store.dead_letters.find(MessageSelection())) == 1
