"""Reading a coordinator's log after a start, fast.

A log holds a record per commit, most of them overtaken by later ones. So keys and values are first
gathered as bytes, where a later value replaces an earlier one at the cost of one dictionary entry,
and only what is left in the end is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.offsets import NO_PRODUCER_ID
from headrace.coordinator.records import decode
from headrace.coordinator.undecided import Undecided
from headrace.protocol.batch import (
    HEADER_BYTES,
    UNPACKED_BYTES_MAX,
    BatchHeader,
    InvalidBatch,
    iter_headers,
)
from headrace.protocol.compression import decompress
from headrace.protocol.control import ControlType, parse_marker
from headrace.protocol.primitives import VARINT_BYTES_MAX, Buffer, ProtocolError, read_varint


class Loader:
    """Batches of the log in, a coordinator's stored state out."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._undecided: Undecided[bytes, bytes] = Undecided()

    def feed(self, batches: Buffer) -> int | None:
        """Take in whole batches in the order of the log; returns the offset after the last one."""
        next_offset = None
        for position, header in iter_headers(batches):
            next_offset = header.next_offset
            if header.is_control:
                marker = parse_marker(batches, position)
                if marker is not None:
                    committed = marker.control_type is ControlType.COMMIT
                    ended = self._undecided.end(header.producer_id, committed=committed)
                    self._values.update(ended)
                continue
            pairs = key_values(batches, position, header)
            if header.is_transactional or self._undecided:
                self._weigh(pairs, header)
            else:
                values = self._values
                for key, value in pairs:
                    if value is None:
                        values.pop(key, None)
                    else:
                        values[key] = value
        return next_offset

    def _weigh(self, pairs: Iterator[tuple[bytes, bytes | None]], header: BatchHeader) -> None:
        """Take in records while transactions are open."""
        for key, value in pairs:
            if header.is_transactional and value is not None:
                self._undecided.put(header.producer_id, key, value)
                continue
            self._undecided.settle(key)
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def replay_into(self, coordinator: GroupCoordinator) -> int:
        """Replay what is left; returns how many records made no sense and were skipped."""
        plain = ((NO_PRODUCER_ID, key, value) for key, value in self._values.items())
        malformed = 0
        for producer_id, key, value in chain(plain, self._undecided.held()):
            try:
                change = decode(key, value)
            except ProtocolError:
                malformed += 1
                continue
            if change is not None:
                coordinator.replay(change, producer_id)
        return malformed


def key_values(
    buffer: Buffer, position: int, header: BatchHeader
) -> Iterator[tuple[bytes, bytes | None]]:
    """The keys and values of a batch; a record without a key means nothing here.

    A third of the time of decoding whole records: a start may have millions to read, and of their
    varints most are one byte long and the rest need not be known.
    """
    packed = memoryview(buffer)[position + HEADER_BYTES : position + header.size]
    data = bytes(decompress(header.codec, packed, UNPACKED_BYTES_MAX))
    at = 0
    try:
        for _ in range(header.record_count):
            size = data[at] >> 1
            if data[at] < 0x80:
                at += 1
            else:
                size, at = read_varint(data, at, VARINT_BYTES_MAX)
            stop = at + size
            at += 1  # attributes
            while data[at] >= 0x80:  # timestamp delta
                at += 1
            at += 1
            while data[at] >= 0x80:  # offset delta
                at += 1
            at += 1
            if data[at] < 0x80 and not data[at] & 1:
                size = data[at] >> 1
                at += 1
            else:
                size, at = read_varint(data, at, VARINT_BYTES_MAX)
            if size < 0:
                at = stop
                continue
            key = data[at : at + size]
            at += size
            if data[at] < 0x80 and not data[at] & 1:
                size = data[at] >> 1
                at += 1
            else:
                size, at = read_varint(data, at, VARINT_BYTES_MAX)
            yield key, data[at : at + size] if size >= 0 else None
            at = stop
    except IndexError as error:
        raise InvalidBatch(f"a record at offset {header.base_offset} is malformed") from error
