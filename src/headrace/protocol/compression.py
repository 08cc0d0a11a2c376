"""The compression codecs of record batches, each with a limit on the unpacked size."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from struct import error as StructError

import cramjam

from headrace.protocol.primitives import Buffer

XERIAL_MAGIC = b"\x82SNAPPY\x00"
"""Opens snappy data framed by the xerial library, as Java clients send it."""
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
XERIAL_BLOCK_BYTES = 32 * 1024
FIRST_GUESS_BYTES_MIN = 64 * 1024
# The library's message when the output buffer is full.
OUT_OF_ROOM = "failed to write whole buffer"

_block_length = Struct(">i")


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_UNPACK_INTO: dict[int, Callable[[Buffer, bytearray | memoryview], int]] = {
    Codec.GZIP: cramjam.gzip.decompress_into,
    Codec.LZ4: cramjam.lz4.decompress_into,
    Codec.ZSTD: cramjam.zstd.decompress_into,
}


class CompressionError(ValueError):
    """The data is not valid for its codec, or unpacks to more than the limit."""


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """Compress data in the framing that every Kafka client can read; level None is the usual one.

    Snappy has no levels.
    """
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            # Java's reader accepts only frames with independent blocks.
            packer = cramjam.lz4.Compressor(level=level, block_linked=False)
            packer.compress(bytes(data))
            return bytes(packer.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise CompressionError(f"compression codec {codec} is not known")


def decompress(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """Unpack data; raises CompressionError if it would take more than `limit_bytes`."""
    match codec:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise CompressionError(_too_large(limit_bytes))
            return data
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case Codec.GZIP | Codec.LZ4 | Codec.ZSTD:
            return _decompress_bounded(codec, data, limit_bytes)
    raise CompressionError(f"compression codec {codec} is not known")


def decompress_into(codec: int, data: Buffer, room: bytearray | memoryview) -> int | None:
    """Unpack data (not snappy) into a buffer; returns the size, or None if it does not fit."""
    try:
        return _UNPACK_INTO[codec](data, room)
    except cramjam.DecompressionError as error:
        if OUT_OF_ROOM in str(error):
            return None
        raise CompressionError(str(error)) from error


def _decompress_bounded(codec: int, data: Buffer, limit_bytes: int) -> Buffer:
    """Unpack into a buffer of a guessed size, then into larger ones up to the limit."""
    room_bytes = min(limit_bytes, max(FIRST_GUESS_BYTES_MIN, 8 * len(data)))
    while True:
        out = bytearray(room_bytes)
        size_bytes = decompress_into(codec, data, out)
        if size_bytes is not None:
            return memoryview(out)[:size_bytes]
        if room_bytes == limit_bytes:
            raise CompressionError(_too_large(limit_bytes))
        room_bytes = min(limit_bytes, 8 * room_bytes)


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(XERIAL_HEADER)
    view = memoryview(data)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES])
        out += _block_length.pack(len(block))
        out += memoryview(block)
    return bytes(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    view = memoryview(data)
    if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _decompress_raw_snappy(view, limit_bytes, limit_bytes)
    out = bytearray()
    pos = len(XERIAL_HEADER)
    while pos < len(view):
        try:
            (block_bytes,) = _block_length.unpack_from(view, pos)
        except StructError as error:
            raise CompressionError("a snappy block is cut short") from error
        pos += _block_length.size
        if not 0 <= block_bytes <= len(view) - pos:
            raise CompressionError("a snappy block is cut short")
        block = view[pos : pos + block_bytes]
        out += _decompress_raw_snappy(block, limit_bytes - len(out), limit_bytes)
        pos += block_bytes
    return out


def _decompress_raw_snappy(block: memoryview, room_bytes: int, limit_bytes: int) -> Buffer:
    try:
        # The length is only claimed by the block: check it before allocating.
        if cramjam.snappy.decompress_raw_len(block) > room_bytes:
            raise CompressionError(_too_large(limit_bytes))
        return memoryview(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CompressionError(str(error)) from error


def _too_large(limit_bytes: int) -> str:
    return f"the batch unpacks to more than {limit_bytes} bytes"
