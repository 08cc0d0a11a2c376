"""A log against a model of it: a list of records, under everything that can happen to a log."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.storage.batches import NOW_MS, batch, flush, read_all
from tests.storage.faulty_files import PowerLossFileSystem

from headrace.storage import Log, LogConfig, LogManager

CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=120, max_message_bytes=600, retention_ms=-1
)


class LogMachine(RuleBasedStateMachine):
    """The real log lives on a disk that can lose power; the model is `self.records`."""

    fs: PowerLossFileSystem
    logs: LogManager
    log: Log

    @initialize()
    def begin(self) -> None:
        self.fs = PowerLossFileSystem()
        self.records: dict[int, bytes] = {}
        self.end = 0
        self.start = 0
        self.durable = 0
        self.sequence: int | None = None
        self.last_batch: tuple[int, int, int] | None = None
        self.open()

    def open(self) -> None:
        self.logs = LogManager(self.fs, ["/data"], CONFIG, lambda: NOW_MS, rng=random.Random(1))
        self.logs.open()
        self.logs.load()
        self.log = self.logs.get("t", 0) or self.logs.create("t", 0, bytes(16))
        self.log.high_watermark = self.log.end_offset

    @rule(values=st.lists(st.binary(max_size=60), min_size=1, max_size=4))
    def append(self, values: list[bytes]) -> None:
        info = self.log.append(batch(values), leader_epoch=0, now_ms=NOW_MS)
        assert info.base_offset == self.end
        self.note(values)

    @rule(values=st.lists(st.binary(max_size=30), min_size=1, max_size=3))
    def append_idempotent(self, values: list[bytes]) -> None:
        sequence = self.sequence or 0
        info = self.log.append(
            batch(values, producer_id=9, epoch=0, sequence=sequence), leader_epoch=0, now_ms=NOW_MS
        )
        assert (info.base_offset, info.duplicate) == (self.end, False)
        self.last_batch = (sequence, self.end, len(values))
        self.sequence = sequence + len(values)
        self.note(values)

    def note(self, values: list[bytes]) -> None:
        for value in values:
            self.records[self.end] = value
            self.end += 1

    @precondition(lambda self: self.last_batch is not None)
    @rule()
    def repeat_the_last_idempotent_batch(self) -> None:
        assert self.last_batch is not None
        sequence, offset, count = self.last_batch
        again = batch([b"again"] * count, producer_id=9, epoch=0, sequence=sequence)
        info = self.log.append(again, leader_epoch=0, now_ms=NOW_MS)
        assert (info.base_offset, info.duplicate) == (offset, True)

    @rule()
    def sync(self) -> None:
        flush(self.log)
        self.durable = self.end

    @rule()
    def checkpoint(self) -> None:
        self.logs.checkpoint()
        self.durable = self.end

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log.high_watermark = self.log.end_offset
        self.start += int((self.end - self.start) * part)
        assert self.log.delete_records(self.start) == self.start
        self.logs.run_retention(NOW_MS)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.start + int((self.end - self.start) * part)
        self.log.truncate_to(offset, NOW_MS)
        assert offset - 4 < self.log.end_offset <= offset
        self.shrink()
        self.durable = min(self.durable, self.end)

    @rule(offset=st.floats(0, 1), max_bytes=st.integers(0, 800))
    def read(self, offset: float, max_bytes: int) -> None:
        at = self.start + int((self.end - self.start) * offset)
        piece = self.log.read(at, max_bytes, limit=self.end, wait=False)
        assert (piece is None) == (at == self.end)
        found = [(record.offset, record.value) for record in read_all(self.log, at)]
        assert found == [(o, self.records[o]) for o in range(at, self.end)]

    @rule()
    def stop_and_start(self) -> None:
        self.logs.close()
        self.durable = self.end
        self.open()
        assert self.log.end_offset == self.end
        assert self.log.start_offset == self.start

    @rule()
    def kill(self) -> None:
        self.fs = self.fs.crash(random.Random(0), keep_probability=1)
        self.after_crash()
        assert self.log.end_offset == self.end

    @rule(seed=st.integers(0, 1 << 30), keep=st.sampled_from([0.0, 0.3, 0.7, 0.95]))
    def lose_power(self, seed: int, keep: float) -> None:
        self.fs = self.fs.crash(random.Random(seed), keep_probability=keep)
        self.after_crash()

    def after_crash(self) -> None:
        self.open()
        assert self.durable <= self.log.end_offset <= self.end
        if self.log.end_offset < self.end:
            self.shrink()
        # A start that was not checkpointed may be forgotten; deleted records are then seen again.
        assert self.log.start_offset <= self.start
        self.log.high_watermark = self.log.end_offset
        self.start = min(self.start, self.end)
        self.log.delete_records(self.start)
        self.durable = self.end

    def shrink(self) -> None:
        self.end = self.log.end_offset
        self.start = min(self.start, self.end)
        producer = self.log.producers.get(9)
        self.sequence = producer.next_sequence if producer else None
        if producer is None or not producer.batches:
            self.last_batch = None
        else:
            last = producer.batches[-1]
            count = last.last_offset - last.first_offset + 1
            self.last_batch = (last.first_sequence, last.first_offset, count)

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert self.log.synced_offset >= self.durable
            assert self.log.recovery_point <= self.log.synced_offset


TestLogAgainstModel = LogMachine.TestCase
TestLogAgainstModel.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
