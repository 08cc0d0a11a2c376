"""One running node: the submitter and owner services, and the threads that serve them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.client.producer import Producer
from headrace.client.settings import common_settings, settings_of
from headrace.dispatch.consumers import DoneReader, WorkConsumer
from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.lookup_service import LookupService
from headrace.dispatch.owner_service import OwnerService
from headrace.dispatch.spool.port import Beat, DoneRead, Spool
from headrace.dispatch.spool.writer import SpoolWriter
from headrace.dispatch.submitter_service import SubmitterService
from headrace.dispatch.token_service import TokenService
from headrace.dispatch.topic_admin import TopicAdmin
from headrace.dispatch.workers import Workers, make_workers
from headrace.handlers.loop import LoopThread

if TYPE_CHECKING:
    from headrace.client.delivery import OnDelivery
    from headrace.dispatch.options import NodeOptions
    from headrace.dispatch.records import Outcome
    from headrace.dispatch.spool.writer import SpoolCapacity
    from headrace.dispatch.tokens.store import Answer, TokenChange, TokenStore
    from headrace.dispatch.workers import WorkerFunction

# How long a stopping node waits for a token store that does not answer.
STORE_SECONDS = 5.0
FLUSH_SECONDS = 10.0

# An idempotent producer has at most five requests in flight, each with one partition, and the
# library spins while more are waiting. So idempotence is off, and a retried send may leave a copy:
# the owner drops the copy of a job, and a repeated outcome does no harm. A full producer is not
# waited for, since the threads that send also renew leases.
_BOTH = {"enable.idempotence": False, "max.block.ms": 0}
# A job is sent at once, also to a new partition.
WORK_SETTINGS = {**_BOTH, "linger.ms": 0, "topic.metadata.refresh.interval.ms": 10_000}
# Outcomes may be batched for a moment.
DONE_SETTINGS = {**_BOTH, "linger.ms": 5}

_log = logging.getLogger("headrace.dispatch")


class Node:
    """Connects the services, and starts and stops them in the right order."""

    def __init__(
        self,
        options: NodeOptions,
        store: TokenStore,
        spool: Spool,
        capacity: SpoolCapacity,
        worker: WorkerFunction | None,
        on_finished: Callable[[Outcome], None],
    ) -> None:
        self.options = options
        self.store = store
        given = {"bootstrap.servers": options.bootstrap, **options.settings}
        of_consumers = settings_of(given, "consumer")
        of_producers = settings_of(given, "producer")
        of_readers = common_settings(given)
        self._loop = LoopThread()
        self.admin = TopicAdmin(of_readers)
        self.admin.ensure_topics(options.topic, options.done_topic, options.partitions)
        contents = spool.recover()
        self.name = spool.node
        self._producers = [
            Producer({**own, **of_producers}) for own in (WORK_SETTINGS, DONE_SETTINGS)
        ]
        self.submitter = SubmitterService(
            self.name,
            options.topic,
            self._producers[0],
            capacity,
            on_finished=on_finished,
            now_ms=_wall_ms,
            write=self._write_outcome,
        )
        self.owner = OwnerService(
            self.name, options.topic, options.done_topic, options.limits, self._producers[1]
        )
        self.tokens = TokenService(
            store,
            self.name,
            options.weight,
            options.limits,
            want=self.submitter.want,
            on_answer=self._answered,
            on_granted=self.submitter.granted,
        )
        self.writer = SpoolWriter(spool, on_beat=self._on_beat, now_ms=_wall_ms)
        self.reader = DoneReader(
            of_readers,
            options.done_topic,
            self.admin,
            mine=self.submitter,
            on_outcomes=self.submitter.outcomes,
        )
        self.lookup = LookupService(
            of_readers,
            options.topic,
            options.done_topic,
            options.group,
            self.admin,
            self.submitter,
            self.owner,
            self._check_for_tokens,
        )
        self.submitter.connect(self.writer, self.tokens, self.reader)
        self.consumer: WorkConsumer | None = None
        self.workers: Workers | None = None
        if worker is not None:
            self.workers = make_workers(worker, self.name, self.owner.ended, self._loop)
            self.owner.connect(self.workers, self.tokens, self.lookup)
            self.consumer = WorkConsumer(
                of_consumers, options.topic, options.group, self.admin, self.owner
            )
        self._has_warned = False
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="headrace-tick", daemon=True)
        self.submitter.recover(contents)
        # A node without unfinished jobs needs nothing that was written before.
        self._was_read = dict(contents.read) if contents.jobs else None

    def start(self) -> None:
        """Start; TOPIC.done is read from where it was left before anything is sent."""
        self.reader.place(self._was_read or {})
        if self._was_read is not None:
            self.reader.start()
        # Written before the first job: after a crash, its outcome is searched from here on.
        self.writer.note([DoneRead(*at) for at in self.reader.position.items()])
        self.writer.start()
        self.lookup.start()
        self.tokens.start()
        if self.consumer is not None:
            self.consumer.start()
        self._ticker.start()

    def abandon(self) -> None:
        """Close the producers of a node that could not start."""
        for producer in self._producers:
            producer.close(0)

    def stop(self, drain_s: float) -> None:
        """Leave the group, let running jobs finish within `drain_s`, and keep the rest."""
        steps: list[Callable[[], object]] = []
        if self.consumer is not None and self.workers is not None:
            workers = self.workers
            steps += [self.consumer.stop, lambda: self._drain(workers, drain_s)]
        steps += [
            # A lease ends only when its outcome is written, and the store has to learn of that.
            lambda: self.owner.flush(FLUSH_SECONDS),
            lambda: self.tokens.stop(STORE_SECONDS),
            # The spool has to learn what was sent, or it would be sent again at the next start.
            lambda: self._producers[0].flush(FLUSH_SECONDS),
            self._end_ticks,
            self.lookup.stop,
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
                _log.exception("a step of stopping the node failed")

    def metrics(self) -> dict[str, int]:
        """Counts and gauges of this node."""
        owner, submitter = self.owner.machine, self.submitter.machine
        found = {
            "waiting": submitter.want,
            "unfinished": len(self.submitter.jobs),
            "sent": submitter.counts["sent"],
            "refused_back": submitter.counts["refused"],
            "lost_back": submitter.counts["lost"],
            "partitions": 0 if self.consumer is None else len(self.consumer.owned),
            "running": len(owner.running),
            "done": self.owner.finished["done"],
            "failed": self.owner.finished["failed"],
            "store_calls": self.tokens.calls,
            "store_failures": self.tokens.failures,
            "store_away": int(self.tokens.is_away),
        }
        found |= {f"owner_{name.replace(' ', '_')}": n for name, n in owner.counts.items()}
        return found

    def _answered(self, changes: Sequence[TokenChange], answer: Answer) -> None:
        if answer.granted:
            self.submitter.granted(answer.granted)
        if self.consumer is not None:
            self.owner.answered(changes, answer)

    def _on_beat(self, beat: Beat) -> None:
        if beat.kept is not None:
            self.submitter.drop_all_but(beat.kept)
        if beat.adopted is not None:
            _log.info("took over %d jobs of dead nodes", len(beat.adopted.jobs))
            self.submitter.recover(beat.adopted)
            self.reader.rewind(beat.adopted.read)
            self.reader.start()
            self.tokens.ask()

    def _check_for_tokens(self) -> None:
        """Warn once when jobs wait and no worker has ever put a token into this store."""
        if self._has_warned or not (waiting := self.submitter.want()):
            return
        try:
            tokens = self.store.status().tokens
        except TokensUnavailable:
            return
        if not tokens:
            self._has_warned = True
            _log.warning(
                "%d jobs wait, and no worker has put a token for %s into %s (check that workers "
                "run with the same tokens=; a relative sqlite:///FILE depends on the folder)",
                waiting,
                self.options.topic,
                self.options.tokens,
            )

    def _write_outcome(self, outcome: Outcome, on_delivery: OnDelivery) -> None:
        self._producers[1].send(
            self.options.done_topic,
            outcome.answer,
            key=outcome.id.encode(),
            headers=outcome.headers(),
            on_delivery=on_delivery,
        )

    def _drain(self, workers: Workers, drain_s: float) -> None:
        if not workers.stop(drain_s):
            _log.warning(
                "%d jobs still run after %s s; they run again elsewhere", workers.busy, drain_s
            )

    def _tick(self) -> None:
        if self.consumer is None:
            return
        while not self._stopping.wait(self.options.limits.tick_ms / 1000):
            try:
                self.owner.tick()
            except Exception:
                _log.exception("a tick failed")

    def _end_ticks(self) -> None:
        self._stopping.set()
        if self._ticker.ident is not None:
            self._ticker.join()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
