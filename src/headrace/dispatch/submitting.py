"""The submitting half of a node: items wait, are sent with a token each, and end by TOPIC.done."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.produce_errors import is_record_fault, is_unknown_partition
from headrace.dispatch.effects import Effect, Send, Store
from headrace.dispatch.fences import Fence, Token
from headrace.dispatch.outcomes import Outcome
from headrace.dispatch.sender import Sender
from headrace.dispatch.spool.changes import (
    Back,
    Change,
    Done,
    Entries,
    Entry,
    Place,
    Put,
    Read,
    Sent,
)
from headrace.dispatch.tokens import Return, Revoke
from headrace.dispatch.work_records import Work, headers_of

if TYPE_CHECKING:
    from headrace.client.delivery import OnDelivery, RecordMetadata
    from headrace.client.errors import DeliveryFailed
    from headrace.client.producer import Producer
    from headrace.dispatch.exchanger import Exchanger
    from headrace.dispatch.room import Room
    from headrace.dispatch.spool.writer import SpoolWriter

# How far TOPIC.done has been read is kept this often.
READ_SECONDS = 1.0
# An item whose sending failed waits so long at first, and at last, before it is sent again.
AGAIN_SECONDS_MIN = 0.05
AGAIN_SECONDS_MAX = 5.0

_log = logging.getLogger("headrace.dispatch")


@dataclass(slots=True)
class Item:
    """An unfinished item, and where it lies in the work topic, if it does."""

    value: bytes
    submitted_ms: int
    place: Place | None = None
    sent_ms: int = 0
    # Sends that failed; the pause before the next one grows with them.
    failures: int = 0


def _later(delay_s: float, deed: Callable[[], None]) -> None:
    timer = threading.Timer(delay_s, deed)
    timer.daemon = True
    timer.start()


class Submitting:
    """The unfinished items of this node; usable from many threads."""

    def __init__(
        self,
        node: str,
        topic: str,
        producer: Producer,
        room: Room,
        *,
        on_finished: Callable[[Outcome], None],
        now_ms: Callable[[], int],
        write: Callable[[Outcome, OnDelivery], None],
        later: Callable[[float, Callable[[], None]], None] = _later,
    ) -> None:
        self.items: dict[str, Item] = {}
        self.sender = Sender()
        self._node = node
        self._topic = topic
        self._producer = producer
        self._room = room
        self._on_finished = on_finished
        self._now_ms = now_ms
        self._write = write
        self._later = later
        self._lock = threading.Lock()
        # Sent by an earlier life of this node, or by one that is dead: only the place is known.
        self._adrift: set[str] = set()
        # Taken over by others; whoever waits for one here still wants to know.
        self._left: set[str] = set()
        self._read_at_s = 0.0
        self._writer: SpoolWriter
        self._exchanger: Exchanger

    def connect(self, writer: SpoolWriter, exchanger: Exchanger) -> None:
        """Use these, which had to know this one before they were made."""
        self._writer = writer
        self._exchanger = exchanger

    def __contains__(self, id: object) -> bool:
        """Whether the outcome of this item matters here."""
        return id in self.items or id in self._left

    def want(self) -> int:
        """How many items wait for a token."""
        return self.sender.want

    def kept(self, puts: Sequence[Put]) -> None:
        """New items are in the spool: they wait for tokens now."""
        with self._lock:
            # Two threads may have submitted one id at the same time.
            repeated = [put for put in puts if put.id in self.items]
            for put in puts:
                self.items.setdefault(put.id, Item(put.value, put.submitted_ms))
            self.sender.submitted(put.id for put in puts)
        if repeated:
            self._room.leave(len(repeated), sum(len(put.value) for put in repeated))
        self._exchanger.ask()

    def take_in(self, entries: Entries) -> None:
        """Items of an earlier life or of a dead node: they wait, or their outcome is waited for."""
        new = [entry for entry in entries.items.values() if entry.id not in self.items]
        with self._lock:
            for entry in new:
                self._take_in(entry)
        self._room.occupy(len(new), sum(len(entry.value) for entry in new))

    def _take_in(self, entry: Entry) -> None:
        now_ms = self._now_ms()
        self.items[entry.id] = Item(entry.value, entry.submitted_ms, entry.sent, now_ms)
        if entry.sent is None:
            self.sender.submitted([entry.id])
        else:
            self._adrift.add(entry.id)

    def leave_all_but(self, kept: Iterable[str]) -> None:
        """Others have taken over the rest, because this node seemed dead."""
        kept = set(kept)
        with self._lock:
            gone = {id: self.items.pop(id) for id in list(self.items) if id not in kept}
            self._left |= gone.keys()
            for id in gone:
                self._adrift.discard(id)
                self.sender.outcome(id, "done", None)
        self._room.leave(len(gone), sum(len(item.value) for item in gone.values()))

    def granted(self, tokens: Iterable[Token]) -> None:
        """Tokens came: send an item with each."""
        with self._lock:
            effects = self.sender.granted(tokens)
        self._carry_out(effects)

    def outcomes(self, outcomes: Sequence[Outcome], position: Mapping[int, int]) -> None:
        """TOPIC.done tells what became of items; it has been read up to `position`."""
        changes: list[Change] = []
        finished: list[Outcome] = []
        freed_bytes = 0
        with self._lock:
            for outcome in outcomes:
                item = self.items.get(outcome.id)
                if item is None:
                    if outcome.is_final and outcome.id in self._left:
                        self._left.discard(outcome.id)
                        self._on_finished(outcome)
                    continue
                if not outcome.is_of(item.submitted_ms):
                    # Of an earlier job with this id.
                    continue
                if self._is_finished(outcome, item):
                    del self.items[outcome.id]
                    freed_bytes += len(item.value)
                    finished.append(outcome)
                    changes.append(Done(outcome.id))
                elif item.place is None:
                    changes.append(Back(outcome.id))
        now_s = time.monotonic()
        if now_s >= self._read_at_s:
            self._read_at_s = now_s + READ_SECONDS
            changes += [Read(*place) for place in position.items()]
        if changes:
            self._writer.note(changes)
        if finished:
            self._room.leave(len(finished), freed_bytes)
        for outcome in finished:
            self._on_finished(outcome)
        if len(finished) < len(outcomes):
            self._exchanger.ask()

    def _is_finished(self, outcome: Outcome, item: Item) -> bool:
        place = (outcome.partition, outcome.offset)
        if outcome.id in self._adrift:
            if not outcome.is_final:
                if place == item.place:
                    self._wait_again(outcome.id, item)
                return False
            self._adrift.discard(outcome.id)
            return True
        fence = Fence.parse(outcome.fence)
        token = None if fence is None else Token(outcome.partition, fence)
        before = self.sender.want
        is_finished = self.sender.outcome(outcome.id, outcome.state, token)
        if not is_finished and self.sender.want > before:
            item.place = None
        return is_finished

    def overdue(self, sent_before_ms: int) -> dict[str, Item]:
        """Items that were sent long ago and have no outcome yet."""
        with self._lock:
            return {
                id: item
                for id, item in self.items.items()
                if item.place is not None and item.sent_ms < sent_before_ms
            }

    def lost(self, places: Mapping[str, Place]) -> None:
        """These were passed over at their places without an outcome: they are sent again."""
        changes: list[Change] = []
        with self._lock:
            for id, place in places.items():
                item = self.items.get(id)
                if item is None or item.place != place:
                    continue
                if id in self._adrift:
                    self.sender.counts["lost"] += 1
                    self._wait_again(id, item)
                else:
                    item.place = None
                    self.sender.lost(id)
                changes.append(Back(id))
        if changes:
            self._writer.note(changes)
            self._exchanger.ask()

    def _wait_again(self, id: str, item: Item) -> None:
        self._adrift.discard(id)
        item.place = None
        self.sender.submitted([id])

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.item_id, effect.token)
            elif isinstance(effect, Store):
                self._exchanger.add([effect.change])

    def _send(self, id: str, token: Token) -> None:
        item = self.items.get(id)
        if item is None:
            # Its outcome came just now, by a way that nobody counted on any more.
            self._exchanger.add([Return(*token)])
            return

        def delivered(metadata: RecordMetadata | None, error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._not_sent(id, token, error, surely=False)
            else:
                item.failures = 0
                item.place = (metadata.partition, metadata.offset)
                item.sent_ms = self._now_ms()
                if id in self.items:
                    self._writer.note([Sent(id, metadata.partition, metadata.offset)])

        headers = headers_of(Work(id, token.fence.text(), item.submitted_ms))
        try:
            self._producer.send(
                self._topic,
                item.value,
                headers=headers,
                partition=token.partition,
                on_delivery=delivered,
            )
        except Exception as error:
            self._not_sent(id, token, error, surely=True)

    def _not_sent(self, id: str, token: Token, error: Exception | None, *, surely: bool) -> None:
        _log.warning("job %s was not sent to %s/%d: %s", id, self._topic, token.partition, error)
        item = self.items.get(id)
        if item is not None and is_record_fault(error):
            self._exchanger.add([Return(*token)])
            self._give_up(id, item, token, error)
            return
        with self._lock:
            effects = self.sender.failed(id, token, surely=surely)
        if is_unknown_partition(error):
            # Left in the store by a topic that had more partitions. Should this producer only not
            # know a new one yet, its owner misses the token and puts it there again.
            effects = [Store(Revoke(*token))]
        self._carry_out(effects)
        failures = 0
        if item is not None:
            failures, item.failures = item.failures, item.failures + 1
        pause_s = min(AGAIN_SECONDS_MIN * 2 ** min(failures, 10), AGAIN_SECONDS_MAX)
        self._later(pause_s, lambda: self._again(id, token))

    def _again(self, id: str, token: Token) -> None:
        with self._lock:
            self.sender.again(id, token)
        self._exchanger.ask()

    def _give_up(self, id: str, item: Item, token: Token, error: Exception | None) -> None:
        """The brokers will never take this job: it has failed, and TOPIC.done says so."""

        def written(metadata: RecordMetadata | None, _error: DeliveryFailed | None) -> None:
            if metadata is None:
                self._later(AGAIN_SECONDS_MAX, lambda: self._again(id, token))

        place = (token.partition, token.fence.next_offset, token.fence.text(), self._node)
        told = (type(error).__name__, str(error))
        outcome = Outcome(id, "failed", *place, error=told, submitted_ms=item.submitted_ms)
        try:
            self._write(outcome, written)
        except Exception:
            _log.exception("that job %s cannot be sent was not written", id)
            written(None, None)
