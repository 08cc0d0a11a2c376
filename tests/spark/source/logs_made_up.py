"""Made-up logs of a partition: what brokers may hold, and what a reader of it must see."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from headrace.client.wire.batch_reader import Fetched
from headrace.protocol.batch import build_batch, iter_headers
from headrace.protocol.control import ControlType, EndTransactionMarker, build_marker
from headrace.protocol.records import Record

Row = dict[str, object]

_bytes = st.none() | st.binary(max_size=40) | st.integers(0, 400).map(lambda size: b"x" * size)
_headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=3)
_times_ms = st.integers(0, 2**41)
PRODUCERS = (7, 8)


@dataclass
class Log:
    """Bytes as a fetch brings them, and the records in them that are committed."""

    data: bytearray = field(default_factory=bytearray)
    aborted: list[tuple[int, int]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    end: int = 0

    @property
    def fetched(self) -> Fetched:
        return Fetched(memoryview(self.data), list(iter_headers(self.data)), self.aborted, self.end)


@st.composite
def logs(draw: st.DrawFn, topic: str = "clicks", partition: int = 3) -> Log:
    """A few batches of every codec, with gaps as compaction leaves them, and transactions."""
    log = Log(end=draw(st.integers(0, 2**40)))
    open_from: dict[int, int] = {}
    pending: dict[int, list[Row]] = {}
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.none() | st.sampled_from(PRODUCERS))
        if producer in open_from and draw(st.booleans()):
            _finish(log, producer, open_from, pending, is_commit=draw(st.booleans()))
            continue
        base, count = log.end, draw(st.integers(0, 6))
        kept = [offset for offset in range(base, base + count) if draw(st.booleans())]
        records = [
            Record(offset, draw(_times_ms), draw(_bytes), draw(_bytes), draw(_headers))
            for offset in kept
        ]
        kind = draw(st.integers(0, 1))
        # Compaction leaves the place of a batch's last record, even when all records are gone.
        last = base + count
        log.data += build_batch(
            records,
            base_offset=base,
            codec=draw(st.integers(0, 4)),
            timestamp_type=kind,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else 0,
            base_sequence=-1 if producer is None else 0,
            transactional=producer is not None,
            last_offset=last,
        )
        log.end = last + 1
        append_ms = max((record.timestamp for record in records), default=0)
        rows = [_row(record, topic, partition, kind, append_ms) for record in records]
        if producer is None:
            log.rows += rows
        else:
            open_from.setdefault(producer, base)
            pending.setdefault(producer, []).extend(rows)
    for producer in list(open_from):
        _finish(log, producer, open_from, pending, is_commit=draw(st.booleans()))
    log.rows.sort(key=lambda row: int(str(row["offset"])))
    return log


def _finish(
    log: Log,
    producer: int,
    open_from: dict[int, int],
    pending: dict[int, list[Row]],
    *,
    is_commit: bool,
) -> None:
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    log.data += build_marker(
        EndTransactionMarker(kind, 0),
        producer_id=producer,
        producer_epoch=0,
        timestamp=0,
        base_offset=log.end,
    )
    log.end += 1
    first, rows = open_from.pop(producer), pending.pop(producer, [])
    if is_commit:
        log.rows += rows
    else:
        log.aborted.append((producer, first))


def _row(record: Record, topic: str, partition: int, kind: int, append_ms: int) -> Row:
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": (append_ms if kind else record.timestamp) * 1000,
        "timestampType": kind,
        "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
    }
