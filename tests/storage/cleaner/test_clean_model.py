"""Cleaning against a model: whatever is written, readers of committed data see the same state."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.storage.cleaner.folders import START_MS, Folder

from headrace.protocol.batch import iter_records
from headrace.protocol.records import Record
from headrace.storage.cleaner.offset_map import SLOT_BYTES
from headrace.storage.cleaner.options import LastRecord

PRODUCERS = (5, 6)
RETENTION_MS = 50


class Model:
    """The log as it would be without cleaning."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}

    def wrote(self, folder: Folder, base: int) -> None:
        for record in folder.records():
            if record.offset >= base:
                self.records[record.offset] = record

    def latest(self, end_offset: int) -> dict[bytes | None, int]:
        """The last offset of each key that cleaning up to an offset leaves."""
        return {
            record.key: offset
            for offset, record in sorted(self.records.items())
            if offset < end_offset and offset not in self.aborted
        }

    def state(self) -> dict[bytes, bytes]:
        """The last committed value of each key; a tombstone is no value."""
        undecided = {offset for offsets in self.open.values() for offset in offsets}
        state: dict[bytes, bytes] = {}
        for offset in sorted(self.records):
            record = self.records[offset]
            if offset in self.aborted or offset in undecided or record.key is None:
                continue
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
        return state


def committed_state(folder: Folder) -> dict[bytes, bytes]:
    """What a read_committed reader of the folder makes of it, by the rules of the consumer."""
    aborted = sorted(folder.aborted(), key=lambda row: row.first_offset)
    aborting: dict[int, int] = {}
    state: dict[bytes, bytes] = {}
    for header, batch in folder.batches():
        while aborted and aborted[0].first_offset <= header.last_offset:
            row = aborted.pop(0)
            aborting[row.producer_id] = row.last_offset
        if header.is_control:
            aborting.pop(header.producer_id, None)
            continue
        if header.is_transactional and header.producer_id in aborting:
            continue
        for record in iter_records(batch):
            if record.key is None:
                continue
            if record.value is None:
                state.pop(record.key, None)
            else:
                state[record.key] = record.value
    return state


class Walk:
    """One random life of a log: appends, transactions, rolls, and cleanings checked each time."""

    def __init__(self, path: Path, seed: int):
        self.random = random.Random(seed)
        self.folder = Folder(path / f"t-{seed}")
        self.model = Model()
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.dirty = 0
        self.now_ms = START_MS
        self.segment_bytes = self.random.choice([1, 400, 1 << 30])
        self.map_slots = self.random.choice([7, 1000])
        self.tombstones_cleaned_ms: dict[int, int] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            step = self.random.choices(
                [self.append, self.append_in_transaction, self.end, self.folder.roll, self.clean],
                [4, 4, 3, 2, 2],
            )[0]
            step()
        self.clean()

    def pairs(self) -> list[tuple[str, str | None]]:
        choice = self.random.choice
        return [
            (choice("abcdefghijkl"), choice([None, "x", "y", "z"]))
            for _ in range(self.random.randint(1, 3))
        ]

    def append(self) -> None:
        base = self.folder.append(self.pairs(), codec=self.random.randint(0, 4))
        self.model.wrote(self.folder, base)

    def append_in_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        pairs = self.pairs()
        base = self.folder.append(
            pairs,
            producer_id=producer_id,
            base_sequence=self.sequences[producer_id],
            transactional=True,
        )
        self.sequences[producer_id] += len(pairs)
        self.model.wrote(self.folder, base)
        self.model.open.setdefault(producer_id, []).extend(range(base, base + len(pairs)))

    def end(self) -> None:
        if self.model.open:
            producer_id = self.random.choice(sorted(self.model.open))
            offsets = self.model.open.pop(producer_id)
            if self.random.random() < 0.5:
                self.model.aborted.update(offsets)
                self.folder.abort(producer_id)
            else:
                self.folder.commit(producer_id)

    def clean(self) -> None:
        # An open transaction would hold the last stable offset, and the cleaner, back.
        while self.model.open:
            self.end()
        if not self.folder.next_offset:
            return
        folder, model = self.folder, self.model
        self.now_ms += self.random.randint(0, RETENTION_MS)
        active = {
            header.producer_id: LastRecord(header.last_offset, header.producer_epoch)
            for header in folder.headers()
            if header.producer_id >= 0 and not header.is_control
        }
        result = folder.clean(
            first_dirty_offset=self.dirty,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            segment_bytes=self.segment_bytes,
            dedupe_buffer_bytes=SLOT_BYTES * self.map_slots,
            last_records=active,
        )
        assert result.end_offset > self.dirty or self.dirty == folder.next_offset
        self.dirty = result.end_offset
        assert committed_state(folder) == model.state()
        survivors = {record.offset: record for record in folder.records()}
        assert all(record == model.records[offset] for offset, record in survivors.items())
        latest = model.latest(self.dirty)
        for offset in model.records:
            if offset >= self.dirty:
                assert offset in survivors  # not cleaned yet
            elif offset in model.aborted or latest[model.records[offset].key] != offset:
                assert offset not in survivors
        # A batch that no longer fits the map is not clean, but its first keys may count already.
        self.check_tombstones(
            set(latest.values()) & set(model.latest(folder.next_offset).values()), survivors
        )
        last = {
            header.producer_id: header.last_offset
            for header in folder.headers()
            if header.producer_id in active and not header.is_control
        }
        assert last == {pid: record.data_offset for pid, record in active.items()}

    def check_tombstones(self, latest: set[int], survivors: dict[int, Record]) -> None:
        """A tombstone that nothing follows stays RETENTION_MS from its first cleaning on."""
        for offset in latest:
            if self.model.records[offset].value is None:
                first_ms = self.tombstones_cleaned_ms.setdefault(offset, self.now_ms)
                expired = self.now_ms >= first_ms + RETENTION_MS
                assert (offset in survivors) is (not expired)


@pytest.mark.parametrize("seed", range(20))
def test_committed_state_offsets_and_timestamps_survive(tmp_path: Path, seed: int) -> None:
    Walk(tmp_path, seed).run(steps=80)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_they_survive_three_hundred_lives(tmp_path: Path) -> None:
    for seed in range(1000, 1300):
        Walk(tmp_path, seed).run(steps=120)
