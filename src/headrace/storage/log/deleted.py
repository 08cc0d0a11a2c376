"""Deleted segments and folders, whose files are removed later: readers may still hold pieces."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.storage.files import FileSystem
    from headrace.storage.log.segment import Segment

_log = logging.getLogger(__name__)


class DeletedSegments:
    """Segments under their `.deleted` names, each with the time at which its files are removed."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[int, Segment]] = []

    def __iter__(self) -> Iterator[Segment]:
        return iter([segment for _, segment in self._rows])

    def add(self, segment: Segment, due_ms: int) -> None:
        self._rows.append((due_ms, segment))

    def take(self, now_ms: int) -> list[Segment]:
        """Take the segments that are due; the caller removes their files."""
        due = [segment for due_ms, segment in self._rows if due_ms <= now_ms]
        if due:
            self._rows = [row for row in self._rows if row[0] > now_ms]
        return due


class DeletedFolder(NamedTuple):
    """A folder under its `-delete` name, when it is removed, and segments that readers may hold."""

    due_ms: int
    path: str
    segments: Sequence[Segment] = ()


class Purge:
    """Files and folders to remove; on another thread, since removing large files takes a while."""

    def __init__(
        self, fs: FileSystem, segments: list[Segment], folders: list[DeletedFolder]
    ) -> None:
        self._fs = fs
        self._segments = segments
        self._folders = folders

    def run(self) -> None:
        """Remove them; failures are logged, and tried again at the next start."""
        for segment in self._segments:
            try:
                segment.remove(self._fs)
            except OSError as error:
                _log.warning("%s cannot be removed: %s", segment.file.path, error)
        for _, path, segments in self._folders:
            for segment in segments:
                segment.close()
            try:
                self._fs.rmtree(path)
            except OSError as error:
                _log.warning("%s cannot be removed: %s", path, error)
