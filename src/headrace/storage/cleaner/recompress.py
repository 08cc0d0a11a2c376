"""Recompression for `compression.type`: the same records under the topic's codec."""

from __future__ import annotations

from headrace.protocol.batch import UNPACKED_BYTES_MAX, InvalidBatch, read_header
from headrace.protocol.primitives import Buffer
from headrace.protocol.records import decode_records
from headrace.storage.cleaner.batches import payload_of, repacked


def recompress(
    batch: Buffer, codec: int, level: int | None = None, limit_bytes: int = UNPACKED_BYTES_MAX
) -> bytearray:
    """One batch with another codec and a new CRC; InvalidBatch when it does not unpack.

    The records are walked, since the broker vouches for a batch that it packed itself: their
    number and their offsets must be those of the header.
    """
    header = read_header(batch, 0)
    view = memoryview(batch)[: header.size]
    try:
        payload = payload_of(view, header, limit_bytes)
        for index, record in enumerate(decode_records(payload, header.record_count, 0, 0, None)):
            if record.offset != index:
                raise InvalidBatch(f"record {index} of the batch says it is {record.offset}")
    except ValueError as error:
        raise InvalidBatch(str(error)) from error
    return repacked(view, header, payload, codec, level)
