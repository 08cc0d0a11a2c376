"""One node while it runs: its two halves, and the threads that connect them to the world."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.client.producer import Producer
from headrace.client.settings import common_settings, settings_of
from headrace.dispatch.cluster import Cluster
from headrace.dispatch.consuming import WorkConsumer
from headrace.dispatch.crew import Crew, make_crew
from headrace.dispatch.done_topic import DoneReader
from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.exchanger import Exchanger
from headrace.dispatch.inspector import Inspector
from headrace.dispatch.owning import Owning
from headrace.dispatch.spool.changes import Put, Read
from headrace.dispatch.spool.port import Beat, Spool
from headrace.dispatch.spool.writer import Kept, SpoolWriter
from headrace.dispatch.submitting import Submitting
from headrace.handlers.loop import LoopThread

if TYPE_CHECKING:
    from headrace.client.delivery import OnDelivery
    from headrace.dispatch.jobs import Worker
    from headrace.dispatch.limits import Limits
    from headrace.dispatch.outcomes import Outcome
    from headrace.dispatch.room import Room
    from headrace.dispatch.tokens import Answer, Change, TokenStore

# A store that is away when a node ends is not waited for longer.
STORE_SECONDS = 5.0
FLUSH_SECONDS = 10.0

# An idempotent producer has five requests on their way at most, each with one partition, and the
# library spins while more is waiting behind them. So a send that is tried again may leave a copy:
# of an item the owner drops it, and a repeated outcome does no harm. Nobody waits for room in a
# producer, since the threads that send also renew leases.
_BOTH = {"enable.idempotence": False, "max.block.ms": 0}
# An item goes out at once, also to a partition that is new.
WORK_SETTINGS = {**_BOTH, "linger.ms": 0, "topic.metadata.refresh.interval.ms": 10_000}
# Outcomes may gather for a moment.
DONE_SETTINGS = {**_BOTH, "linger.ms": 5}

_log = logging.getLogger("headrace.dispatch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a node is told about its place in the world."""

    bootstrap: str
    topic: str
    done_topic: str
    group: str
    settings: Mapping[str, Any]
    limits: Limits
    weight: int
    partitions: int
    tokens: str = ""


class Node:
    """Starts and stops everything in the right order."""

    def __init__(
        self,
        plan: Plan,
        store: TokenStore,
        spool: Spool,
        room: Room,
        worker: Worker | None,
        on_finished: Callable[[Outcome], None],
    ) -> None:
        self.plan = plan
        self.store = store
        given = {"bootstrap.servers": plan.bootstrap, **plan.settings}
        of_consumers = settings_of(given, "consumer")
        of_producers = settings_of(given, "producer")
        of_readers = common_settings(given)
        self._loop = LoopThread()
        self.cluster = Cluster(of_readers)
        self.cluster.ensure_topics(plan.topic, plan.done_topic, plan.partitions)
        entries = spool.recover()
        self.name = spool.node
        self._producers = [
            Producer({**own, **of_producers}) for own in (WORK_SETTINGS, DONE_SETTINGS)
        ]
        self.submitting = Submitting(
            self.name,
            plan.topic,
            self._producers[0],
            room,
            on_finished=on_finished,
            now_ms=_wall_ms,
            write=self._write_outcome,
        )
        self.owning = Owning(
            self.name, plan.topic, plan.done_topic, plan.limits, self._producers[1]
        )
        self.exchanger = Exchanger(
            store,
            self.name,
            plan.weight,
            plan.limits,
            want=self.submitting.want,
            on_answer=self._answered,
            on_granted=self.submitting.granted,
        )
        self.writer = SpoolWriter(spool, on_beat=self._on_beat, now_ms=_wall_ms)
        self.reader = DoneReader(
            of_readers,
            plan.done_topic,
            self.cluster,
            mine=self.submitting,
            on_outcomes=self.submitting.outcomes,
        )
        self.inspector = Inspector(
            of_readers,
            plan.topic,
            plan.done_topic,
            plan.group,
            self.cluster,
            self.submitting,
            self.owning,
            self._look_for_tokens,
        )
        self.submitting.connect(self.writer, self.exchanger)
        self.consumer: WorkConsumer | None = None
        self.crew: Crew | None = None
        if worker is not None:
            self.crew = make_crew(worker, self.name, self.owning.ended, self._loop)
            self.owning.connect(self.crew, self.exchanger, self.inspector)
            self.consumer = WorkConsumer(
                of_consumers, plan.topic, plan.group, self.cluster, self.owning
            )
        self._has_missed_tokens = False
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="headrace-tick", daemon=True)
        self.submitting.take_in(entries)
        # Of a node without unfinished items, nothing that was written before concerns it.
        self._was_read = dict(entries.read) if entries.items else None

    def start(self) -> None:
        """Begin; TOPIC.done is read from where it was left before anything is sent."""
        self.reader.place(self._was_read or {})
        if self._was_read is not None:
            self.reader.start()
        # Written before the first job: after a crash, its outcome is looked for from here on.
        self.writer.note([Read(*place) for place in self.reader.position.items()])
        self.writer.start()
        self.inspector.start()
        self.exchanger.start()
        if self.consumer is not None:
            self.consumer.start()
        self._ticker.start()

    def abandon(self) -> None:
        """Let go of a node that could not begin."""
        for producer in self._producers:
            producer.close(0)

    def put(self, puts: Sequence[Put], kept: Kept) -> None:
        """Keep items in the spool, and have them sent; `kept` is called when they are durable."""

        def after(error: Exception | None) -> None:
            if error is None:
                # Who has never had an item of its own does not read what became of others'.
                if self.reader.start(at_end=True):
                    self.writer.note([Read(*place) for place in self.reader.position.items()])
                self.submitting.kept(puts)
            kept(error)

        self.writer.put(puts, after)

    def stop(self, drain_s: float) -> None:
        """Leave the group, let what runs finish within the bound, and keep the rest."""
        steps: list[Callable[[], object]] = []
        if self.consumer is not None and self.crew is not None:
            crew = self.crew
            steps += [self.consumer.stop, lambda: self._drain(crew, drain_s)]
        steps += [
            # Only with its outcome written does a lease end, and the store has to hear of that.
            lambda: self.owning.flush(FLUSH_SECONDS),
            lambda: self.exchanger.stop(STORE_SECONDS),
            # What was sent is noted in the spool, or it would be sent again at the next start.
            lambda: self._producers[0].flush(FLUSH_SECONDS),
            self._end_ticks,
            self.inspector.stop,
            self.reader.stop,
            self.writer.stop,
            *(lambda it=it: it.close(FLUSH_SECONDS) for it in self._producers),
            self._loop.stop,
            self.store.close,
        ]
        for step in steps:
            try:
                step()
            except Exception:
                _log.exception("a step of stopping failed")

    def metrics(self) -> dict[str, int]:
        """Counts and gauges of this node."""
        owner, sender = self.owning.owner, self.submitting.sender
        waiting = sender.want
        found = {
            "waiting": waiting,
            "unfinished": len(self.submitting.items),
            "sent": sender.counts["sent"],
            "refused_back": sender.counts["refused"],
            "lost_back": sender.counts["lost"],
            "partitions": 0 if self.consumer is None else len(self.consumer.owned),
            "running": len(owner.running),
            "done": self.owning.finished["done"],
            "failed": self.owning.finished["failed"],
            "store_calls": self.exchanger.calls,
            "store_failures": self.exchanger.failures,
            "store_away": int(self.exchanger.is_away),
        }
        found |= {f"owner_{name.replace(' ', '_')}": n for name, n in owner.counts.items()}
        return found

    def _answered(self, changes: Sequence[Change], answer: Answer) -> None:
        if answer.granted:
            self.submitting.granted(answer.granted)
        if self.consumer is not None:
            self.owning.answered(changes, answer)

    def _on_beat(self, beat: Beat) -> None:
        if beat.kept is not None:
            self.submitting.leave_all_but(beat.kept)
        if beat.adopted is not None:
            _log.info("took over %d jobs of nodes that are gone", len(beat.adopted.items))
            self.submitting.take_in(beat.adopted)
            self.reader.rewind(beat.adopted.read)
            self.reader.start()
            self.exchanger.ask()

    def _look_for_tokens(self) -> None:
        """Say once why nothing happens when no worker has ever put a token into this store."""
        if self._has_missed_tokens or not (waiting := self.submitting.want()):
            return
        try:
            tokens = self.store.status().tokens
        except TokensUnavailable:
            return
        if not tokens:
            self._has_missed_tokens = True
            _log.warning(
                "%d jobs wait, and no worker has put a token for %s into %s (do workers run, and "
                "with the same tokens=? sqlite:///FILE is another file in every folder)",
                waiting,
                self.plan.topic,
                self.plan.tokens,
            )

    def _write_outcome(self, outcome: Outcome, on_delivery: OnDelivery) -> None:
        self._producers[1].send(
            self.plan.done_topic,
            outcome.answer,
            key=outcome.id.encode(),
            headers=outcome.headers(),
            on_delivery=on_delivery,
        )

    def _drain(self, crew: Crew, drain_s: float) -> None:
        if not crew.stop(drain_s):
            _log.warning(
                "%d jobs still run after %s s; they run again elsewhere", crew.busy, drain_s
            )

    def _tick(self) -> None:
        if self.consumer is None:
            return
        while not self._stopping.wait(self.plan.limits.tick_ms / 1000):
            try:
                self.owning.tick()
            except Exception:
                _log.exception("a tick failed")

    def _end_ticks(self) -> None:
        self._stopping.set()
        if self._ticker.ident is not None:
            self._ticker.join()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
