"""After a crash in the middle of a move between log dirs: which of two folders is the log.

A folder that a log has moved to has a note in it until the old folder is gone for good: the number
of the move, and either that the copy is complete or in which boot of the machine it was made. In
the same boot everything written is there; after a power loss only a complete copy is the log. A
stale folder may appear later, with a disk that was missing: the higher number is the log. See
`log_move`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition
from headrace.storage import names
from headrace.storage.dirs.log_dir import LogDir
from headrace.storage.files import FileSystem

_log = logging.getLogger(__name__)
_COMPLETE = "whole"


class MoveNote(NamedTuple):
    """The note in a folder that a log has moved to."""

    number: int
    #: The boot in which the copy was made, if known; None once it is complete.
    boot_id: str | None = None

    def encode(self) -> bytes:
        return f"{self.number} {_COMPLETE if self.boot_id is None else self.boot_id}\n".encode()


def add_boot_id(fs: FileSystem, folder: str) -> None:
    """Add the present boot to a note without one; not durable. Raises OSError."""
    # Some file systems make a writer wait that truncates a file and writes it again.
    note = fs.open(os.path.join(folder, names.ARRIVED))
    try:
        note.append(fs.boot_id().encode() + b"\n")
    finally:
        note.close()


def read_note(fs: FileSystem, folder: str) -> MoveNote | None:
    """The note in a folder; None without one. A torn note has no boot and number 0."""
    path = os.path.join(folder, names.ARRIVED)
    if not fs.exists(path):
        return None
    number, _, rest = fs.read(path).decode("ascii", "replace").partition(" ")
    if not number.isdecimal() or not rest.endswith("\n"):
        return MoveNote(0, "")
    made_in = rest.strip("\n")  # on the first line, or added below it
    return MoveNote(int(number), None if made_in == _COMPLETE else made_in)


def remove_note(fs: FileSystem, folder: str) -> None:
    """Forget that a log has moved here: no other folder can be mistaken for it.

    Durable on return: the next move counts from there. Raises OSError.
    """
    with contextlib.suppress(FileNotFoundError):  # if the log was deleted meanwhile
        fs.remove(os.path.join(folder, names.ARRIVED))
        fs.sync_dir(folder)


@dataclass(slots=True)
class _Folder:
    log_dir: LogDir
    path: str
    note: MoveNote | None

    @property
    def number(self) -> int:
        return self.note.number if self.note is not None else 0

    @property
    def is_sure(self) -> bool:
        if self.note is None or self.note.boot_id is None:
            return True
        return bool(self.note.boot_id) and self.note.boot_id == self.log_dir.fs.boot_id()


class MoveRecovery:
    """Leaves one folder for each partition after a start."""

    def __init__(self, fs: FileSystem, all_here: bool, unique: Callable[[], str]) -> None:
        self._fs = fs
        # If a log dir is missing, folders that are not found may be there.
        self._all_here = all_here
        self._unique = unique
        self._found: dict[TopicPartition, list[_Folder]] = defaultdict(list)
        self._futures: list[tuple[TopicPartition, LogDir, str]] = []
        #: Moves that were requested and not completed.
        self.wanted: list[tuple[TopicPartition, LogDir]] = []
        #: Folders with an incomplete copy, to be removed.
        self.leftovers: list[str] = []

    def find_partitions(self, log_dir: LogDir) -> None:
        """Find the partitions of a log dir; raises OSError."""
        for name in self._fs.list(log_dir.path):
            path = os.path.join(log_dir.path, name)
            if (place := names.parse_folder(name)) is not None and self._fs.is_dir(path):
                note = read_note(self._fs, path)
                self._found[place].append(_Folder(log_dir, path, note))
            elif (place := names.parse_future_folder(name)) is not None:
                self._futures.append((place, log_dir, path))

    def settle(self) -> None:
        """Leave one folder for each partition; failures are logged."""
        for place, folders in self._found.items():
            if any(folder.note is not None for folder in folders):
                try:
                    self._choose(place, folders)
                except OSError as error:
                    _log.error("a move of %s-%d cannot be completed: %s", *place, error)
        for place, log_dir, path in self._futures:
            folders = self._found.get(place, [])
            if folders or self._all_here:
                self.leftovers.append(path)
            if folders and all(folder.log_dir is not log_dir for folder in folders):
                self.wanted.append((place, log_dir))

    def _choose(self, place: TopicPartition, folders: list[_Folder]) -> None:
        sure = [folder for folder in folders if folder.is_sure]
        if not sure and not self._all_here:
            for folder in folders:  # the log itself must be in the missing log dir
                name = names.future_folder_name(*place, self._unique())
                self._fs.rename(folder.path, os.path.join(folder.log_dir.path, name))
            self._found[place] = []
            return
        chosen = max(sure or folders, key=lambda folder: folder.number)
        if chosen.note is not None and chosen.note.boot_id is not None:
            self._complete_copy(chosen)
        stale = [each for each in folders if each not in sure or each.number < chosen.number]
        for folder in stale:
            if folder is not chosen:
                self._remove(place, folder, chosen.path)
                if folder.number > chosen.number:  # it was incomplete: the move starts again
                    self.wanted.append((place, folder.log_dir))
        self._found[place] = [chosen]
        if chosen.note is not None and self._all_here:
            remove_note(self._fs, chosen.path)

    def _complete_copy(self, folder: _Folder) -> None:
        """Sync what a killed process has left, and mark it as complete; durable on return."""
        fs = self._fs
        for name in fs.list(folder.path):
            fs.sync_path(os.path.join(folder.path, name))
        fs.sync_dir(folder.path)
        fs.sync_dir(folder.log_dir.path)
        note = MoveNote(max(folder.number, 1))
        fs.write_atomic(os.path.join(folder.path, names.ARRIVED), note.encode())

    def _remove(self, place: TopicPartition, folder: _Folder, instead: str) -> None:
        _log.warning("%s is removed: the log is in %s", folder.path, instead)
        name = names.deleted_folder_name(*place, self._unique())
        self._fs.rename(folder.path, os.path.join(folder.log_dir.path, name))
        self._fs.sync_dir(folder.log_dir.path)


def settle(
    fs: FileSystem, dirs: Iterable[LogDir], all_here: bool, unique: Callable[[], str]
) -> MoveRecovery:
    """Sort out moves that a crash interrupted; a log dir that cannot be read goes offline."""
    settlement = MoveRecovery(fs, all_here, unique)
    for log_dir in dirs:
        if log_dir.offline_error is None:
            try:
                settlement.find_partitions(log_dir)
            except OSError as error:
                log_dir.fail(error)
                return settle(fs, dirs, False, unique)
    settlement.settle()
    return settlement
