"""Keeping what recovery takes out of a log and cannot explain, under a `.corrupt` name."""

from __future__ import annotations

import os

from headrace.storage import names
from headrace.storage.files import File, FileSystem
from headrace.storage.log.scan import SCAN_CHUNK_BYTES
from headrace.storage.log.segment import Segment


def copy_tail(fs: FileSystem, folder: str, file: File, position: int, offset: int) -> str:
    """Copy a file from a position, where an offset was expected; durable when this returns.

    The path of the copy. Raises OSError.
    """
    path = _free_path(fs, os.path.join(folder, names.offset_name(offset, names.LOG)))
    copy = fs.open(path, create=True)
    try:
        for at in range(position, file.size, SCAN_CHUNK_BYTES):
            copy.append(file.pread(min(SCAN_CHUNK_BYTES, file.size - at), at))
        copy.sync()
    finally:
        copy.close()
    fs.sync_dir(folder)
    return path


def move_segment(fs: FileSystem, segment: Segment) -> str:
    """Rename a segment's log file and remove its indexes; the new path. Raises OSError."""
    path = _free_path(fs, segment.file.path)
    fs.rename(segment.file.path, path)
    segment.remove(fs)
    return path


def _free_path(fs: FileSystem, path: str) -> str:
    path += names.CORRUPT
    while fs.exists(path):  # of an earlier recovery, which is no reason to lose it
        path += names.CORRUPT
    return path
