"""One partition of `__consumer_offsets`, with the coordinator of the groups that it stores.

Besides what `shard` promises: commits that arrive together share one batch; heartbeats, joins that
store nothing, and descriptions for administrators get a response at once. They depend only on state
in memory, which a crash loses anyway, and heartbeats must not wait for a slow disk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Pending
from headrace.broker.shard import OnDurable, Shard, Write
from headrace.coordinator.commit_record_templates import CommitBatch, CommitRecordTemplate
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.effects import ProducerEpoch, Reply, Result, SetTimer, TimerKey, TimerKind
from headrace.coordinator.loading import Loader
from headrace.coordinator.offsets import NO_PRODUCER_ID
from headrace.coordinator.records import Change, encode
from headrace.protocol.api.sync_group import SyncGroupResponse
from headrace.protocol.batch import HEADER_BYTES
from headrace.protocol.error_responses import refused
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.storage import Origin

if TYPE_CHECKING:
    from headrace.broker.groups import GroupService
    from headrace.broker.partition import Partition

log = logging.getLogger(__name__)


class GroupShard(Shard[Change]):
    """The coordinator of one partition, with its log, its timers and its waiting responses."""

    holds = "groups"

    def __init__(
        self, service: GroupService, partition: Partition, coordinator: GroupCoordinator
    ) -> None:
        super().__init__(service.node, partition, service.codec, service.commit_timeout_ms)
        self._service = service
        self.coordinator = coordinator
        # Commits from templates in this turn of the loop, each batch with its callbacks. Open
        # writes came later: `takes` writes earlier ones first.
        self._repeated: list[tuple[CommitBatch, list[OnDurable]]] = []

    def carry_out(self, result: Result) -> None:
        """Store, apply and respond, in the order that `shard` promises."""
        self._set_timers(result.timers)
        self._service.note(result.rebalances)
        if result.records:
            self.write(self._write_of(result))
        else:
            for reply in result.replies:
                if isinstance(reply.response, SyncGroupResponse) and not reply.response.error_code:
                    self.when_durable(partial(respond, [reply]))
                else:
                    resolve(reply, ErrorCode.NONE)

    def carry_out_soon(self, result: Result) -> None:
        """Store a commit together with others that arrive in this turn of the loop."""
        if result.records:
            self.write_soon(self._write_of(result))
        else:
            self.carry_out(result)

    def takes(self, template: CommitRecordTemplate, api_version: int) -> bool:
        """Whether a commit from this template would be stored as it is."""
        if self._open:
            self.write_open()  # a transaction's offsets may be among them
        if HEADER_BYTES + template.size > self._batch_bytes_max:
            return False  # it needs more than one batch
        now_ms = self.node.clock.monotonic_ms()
        return self.coordinator.commits.takes(template, api_version, now_ms)

    def commit_from_template(
        self,
        template: CommitRecordTemplate,
        offsets: Sequence[int],
        epochs: Sequence[int],
        on_durable: OnDurable,
    ) -> None:
        """Store a commit made from a template, which `takes` has accepted."""
        if not self._repeated:
            self.node.loop.call_soon(self.write_open)
        if not self._repeated or not self._repeated[-1][0].takes(template, self._batch_bytes_max):
            self._repeated.append((CommitBatch(self.node.clock.now_ms()), []))
        batch, callbacks = self._repeated[-1]
        batch.add(template, offsets, epochs)
        callbacks.append(on_durable)

    @property
    def _batch_bytes_max(self) -> int:
        config = self.partition.log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def write_open(self) -> None:
        if self._repeated:
            self._append_repeated()
        super().write_open()

    def _append_repeated(self) -> None:
        batches, self._repeated = self._repeated, []
        stored: list[OnDurable] = []
        refused: list[tuple[list[OnDurable], ErrorCode]] = []
        for batch, callbacks in batches:
            now_ms = batch.now_ms
            try:
                info = self.partition.append(memoryview(batch.build()), now_ms, keys_checked=True)
            except KafkaError as error:
                log.warning("%s of %s: %s", self.holds, self.name, error)
                refused.append((callbacks, error.code))
                continue
            for template, offsets, epochs in batch.commits:
                self.coordinator.replay_from_template(template, offsets, epochs, now_ms)
            self.end_offset = info.last_offset + 1
            stored += callbacks
        # All at once: a sync that started with the first would not cover the others.
        self.when_durable(partial(call_all, stored))
        # Last: a response may cause the next commit, which must come after these.
        for callbacks, code in refused:
            call_all(callbacks, code)

    def end_transaction(self, marker: bytearray, producer_id: int, committed: bool) -> int:
        """Append a marker, commit or drop the offsets that it decides, and return the next offset.

        While the log is loading, the loader finds the marker there.
        """
        self.write_open()
        info = self.partition.append(
            memoryview(marker), self.node.clock.now_ms(), Origin.COORDINATOR
        )
        if self.is_loaded:
            self.coordinator.end_transaction(producer_id, committed=committed)
            self.end_offset = info.last_offset + 1
        return info.last_offset + 1

    def _write_of(self, result: Result) -> Write[Change]:
        on_durable = partial(respond, result.replies) if result.replies else None
        return Write(result.records, on_durable, result.producer)

    def encode(self, change: Change) -> tuple[bytes, bytes | None]:
        return encode(change)

    def replay(self, change: Change, producer: ProducerEpoch | None) -> None:
        self.coordinator.replay(
            change, NO_PRODUCER_ID if producer is None else producer.producer_id
        )

    def restore(self, loader: Loader) -> int:
        return loader.replay_into(self.coordinator)

    def _set_timers(self, timers: list[SetTimer]) -> None:
        for key, delay_ms in timers:
            # Sessions follow the broker's clock, which tests move; rebalances stay real, so
            # that real clients are not kept waiting.
            session = key.kind is TimerKind.SESSION
            timers_of = self.node.timers if session else self.node.real_timers
            self.set_timer(key, delay_ms, timers_of, partial(self._fire, key))

    def _fire(self, key: TimerKey) -> None:
        self.carry_out(self.coordinator.on_timer(key, self.now()))

    def expire(self) -> None:
        self.write_open()
        for result in self.coordinator.expire(self.now()):
            self.carry_out(result)

    def resume(self) -> None:
        self.carry_out(self.coordinator.resume(self.now()))

    def dismiss(self) -> None:
        batches, self._repeated = self._repeated, []
        for _, callbacks in batches:
            call_all(callbacks, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for reply in self.coordinator.unload(ErrorCode.NOT_COORDINATOR).replies:
            resolve(reply, ErrorCode.NONE)


def call_all(callbacks: list[OnDurable], error: ErrorCode) -> None:
    """Call every callback with the same error."""
    for on_durable in callbacks:
        on_durable(error)


def resolve(reply: Reply, log_error: ErrorCode) -> None:
    """Send a response, or an error if the log failed."""
    assert isinstance(reply.token, Pending)
    try:
        reply.token.resolve(refused(reply.response, log_error) if log_error else reply.response)
    except Exception:
        # One response that cannot be sent must not prevent the others.
        log.exception("a response of a group could not be sent")


def respond(replies: list[Reply], log_error: ErrorCode) -> None:
    """Send the responses of a step."""
    for reply in replies:
        resolve(reply, log_error)
