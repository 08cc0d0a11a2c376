"""One partition of `__consumer_offsets` and the coordinator of the groups that live in it.

What `shard` promises, and: commits that arrive together share one batch; heartbeats, joins that
store nothing, and descriptions for administrators are answered at once. They tell only what lives
in memory; a crash takes it back anyway, and heartbeats must not wait for a slow disk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.purgatory import Pending
from headrace.broker.shard import Landing, Shard, Write
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
    """The coordinator of one partition, with its log, its timers and its waiting replies."""

    holds = "groups"

    def __init__(
        self, service: GroupService, partition: Partition, coordinator: GroupCoordinator
    ) -> None:
        super().__init__(service.node, partition, service.codec, service.commit_timeout_ms)
        self._service = service
        self.coordinator = coordinator
        # Repeated commits of this turn of the loop, each batch with who waits for it. What is open
        # beside them came later: `takes` has the earlier written first.
        self._repeated: list[tuple[CommitBatch, list[Landing]]] = []

    # Effects.

    def carry_out(self, result: Result) -> None:
        """Store, apply and answer, in the order that `shard` promises."""
        self._set_timers(result.timers)
        self._service.note(result.rebalances)
        if result.records:
            self.write(self._write_of(result))
        else:
            for reply in result.replies:
                if isinstance(reply.response, SyncGroupResponse) and not reply.response.error_code:
                    self.when_durable(partial(answer, [reply]))
                else:
                    resolve(reply, ErrorCode.NONE)

    def carry_out_soon(self, result: Result) -> None:
        """Do the same for a commit, together with others that arrive in this turn of the loop."""
        if result.records:
            self.write_soon(self._write_of(result))
        else:
            self.carry_out(result)

    def takes(self, template: CommitRecordTemplate, api_version: int) -> bool:
        """Whether a commit of this template, now, would be stored as it is."""
        if self._open:
            self.write_open()  # a transaction's offsets may be among them
        if HEADER_BYTES + template.size > self._batch_bytes_max:
            return False  # it takes more than one batch
        now_ms = self.node.clock.monotonic_ms()
        return self.coordinator.commits.takes(template, api_version, now_ms)

    def commit_from_template(
        self,
        template: CommitRecordTemplate,
        offsets: Sequence[int],
        epochs: Sequence[int],
        landing: Landing,
    ) -> None:
        """Store a commit made from a template, which `takes` has accepted."""
        if not self._repeated:
            self.node.loop.call_soon(self.write_open)
        if not self._repeated or not self._repeated[-1][0].takes(template, self._batch_bytes_max):
            self._repeated.append((CommitBatch(self.node.clock.now_ms()), []))
        batch, landings = self._repeated[-1]
        batch.add(template, offsets, epochs)
        landings.append(landing)

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
        stored: list[Landing] = []
        refused: list[tuple[list[Landing], ErrorCode]] = []
        for batch, landings in batches:
            now_ms = batch.now_ms
            try:
                info = self.partition.append(memoryview(batch.build()), now_ms, keys_checked=True)
            except KafkaError as error:
                log.warning("%s of %s: %s", self.holds, self.name, error)
                refused.append((landings, error.code))
                continue
            for template, offsets, epochs in batch.commits:
                self.coordinator.replay_from_template(template, offsets, epochs, now_ms)
            self.end_offset = info.last_offset + 1
            stored += landings
        # All at once: a sync that began with the first of them would not cover the others.
        self.when_durable(partial(land, stored))
        # Last, as an answer may let the next commit in, which must not come before these.
        for landings, code in refused:
            land(landings, code)

    def end_transaction(self, marker: bytearray, producer_id: int, committed: bool) -> int:
        """Append a marker and let the offsets it decides count, or vanish; the offset behind it.

        While the log is being loaded the marker is found there.
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
        landing = partial(answer, result.replies) if result.replies else None
        return Write(result.records, landing, result.producer)

    # The log.

    def encode(self, change: Change) -> tuple[bytes, bytes | None]:
        return encode(change)

    def replay(self, change: Change, producer: ProducerEpoch | None) -> None:
        self.coordinator.replay(
            change, NO_PRODUCER_ID if producer is None else producer.producer_id
        )

    def restore(self, loader: Loader) -> int:
        return loader.replay_into(self.coordinator)

    # Time.

    def _set_timers(self, timers: list[SetTimer]) -> None:
        for key, delay_ms in timers:
            # Sessions follow the broker's clock, which tests move; rebalances stay real, so
            # that real clients are not kept waiting.
            session = key.kind is TimerKind.SESSION
            timers_of = self.node.timers if session else self.node.real_timers
            self.set_timer(key, delay_ms, timers_of, partial(self._ring, key))

    def _ring(self, key: TimerKey) -> None:
        self.carry_out(self.coordinator.on_timer(key, self.now()))

    def expire(self) -> None:
        self.write_open()
        for result in self.coordinator.expire(self.now()):
            self.carry_out(result)

    # Life.

    def resume(self) -> None:
        self.carry_out(self.coordinator.resume(self.now()))

    def dismiss(self) -> None:
        batches, self._repeated = self._repeated, []
        for _, landings in batches:
            land(landings, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for reply in self.coordinator.unload(ErrorCode.NOT_COORDINATOR).replies:
            resolve(reply, ErrorCode.NONE)


def land(landings: list[Landing], error: ErrorCode) -> None:
    """Tell everybody who waits for the same."""
    for landing in landings:
        landing(error)


def resolve(reply: Reply, log_error: ErrorCode) -> None:
    """Answer whoever waits; with a refusal if the log failed them."""
    assert isinstance(reply.token, Pending)
    try:
        reply.token.resolve(refused(reply.response, log_error) if log_error else reply.response)
    except Exception:
        # One answer that cannot be sent must not keep the others from theirs.
        log.exception("an answer of a group could not be sent")


def answer(replies: list[Reply], log_error: ErrorCode) -> None:
    """Answer everybody whom a step concerns."""
    for reply in replies:
        resolve(reply, log_error)
