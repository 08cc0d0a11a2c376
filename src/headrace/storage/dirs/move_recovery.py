"""Which of two folders is the log, when a crash came in the middle of a move between log dirs.

A folder that a log has moved to has a note in it until the old folder is gone for good: the number
of the move, and either that the copy is whole or in which run of the machine it was made. In the
same run all that was written is there; after a power loss only a whole copy is the log. A stale
folder may turn up later, with a disk that was away: the higher number is the log. See `move`.
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
_WHOLE = "whole"


class MoveNote(NamedTuple):
    """What is said of a folder that a log has moved to."""

    number: int
    #: The run of the machine in which it was made, if that is known; None once it is whole.
    boot_id: str | None = None

    def encode(self) -> bytes:
        return f"{self.number} {_WHOLE if self.boot_id is None else self.boot_id}\n".encode()


def add_boot_id(fs: FileSystem, folder: str) -> None:
    """Add this run of the machine to a note without any; not durable. Raises OSError."""
    # A file that is cut and written anew is one that some file systems make the writer wait for.
    note = fs.open(os.path.join(folder, names.ARRIVED))
    try:
        note.append(fs.boot_id().encode() + b"\n")
    finally:
        note.close()


def read_note(fs: FileSystem, folder: str) -> MoveNote | None:
    """The note in a folder; None when there is none. One that is torn says nothing for sure."""
    path = os.path.join(folder, names.ARRIVED)
    if not fs.exists(path):
        return None
    number, _, rest = fs.read(path).decode("ascii", "replace").partition(" ")
    if not number.isdecimal() or not rest.endswith("\n"):
        return MoveNote(0, "")
    made_in = rest.strip("\n")  # on the first line, or added below it
    return MoveNote(int(number), None if made_in == _WHOLE else made_in)


def remove_note(fs: FileSystem, folder: str) -> None:
    """Forget that a log has moved here: no other folder can be taken for it any more.

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
    """The folders of all partitions after a start, made to be one for each."""

    def __init__(self, fs: FileSystem, all_here: bool, unique: Callable[[], str]) -> None:
        self._fs = fs
        # With a log dir missing, what is not found may be there.
        self._all_here = all_here
        self._unique = unique
        self._found: dict[TopicPartition, list[_Folder]] = defaultdict(list)
        self._futures: list[tuple[TopicPartition, LogDir, str]] = []
        #: Moves that were asked for and had not come to their end.
        self.wanted: list[tuple[TopicPartition, LogDir]] = []
        #: Folders with half a copy, to be removed.
        self.leftovers: list[str] = []

    def look_through(self, log_dir: LogDir) -> None:
        """Find the partitions of a log dir; raises OSError."""
        for name in self._fs.list(log_dir.path):
            path = os.path.join(log_dir.path, name)
            if (place := names.parse_folder(name)) is not None and self._fs.is_dir(path):
                note = read_note(self._fs, path)
                self._found[place].append(_Folder(log_dir, path, note))
            elif (place := names.parse_future_folder(name)) is not None:
                self._futures.append((place, log_dir, path))

    def settle(self) -> None:
        """Leave one folder for each partition; what cannot be done is logged, and stays."""
        for place, folders in self._found.items():
            if any(folder.note is not None for folder in folders):
                try:
                    self._choose(place, folders)
                except OSError as error:
                    _log.error("a move of %s-%d cannot be brought to its end: %s", *place, error)
        for place, log_dir, path in self._futures:
            folders = self._found.get(place, [])
            if folders or self._all_here:
                self.leftovers.append(path)
            if folders and all(folder.log_dir is not log_dir for folder in folders):
                self.wanted.append((place, log_dir))

    def _choose(self, place: TopicPartition, folders: list[_Folder]) -> None:
        sure = [folder for folder in folders if folder.is_sure]
        if not sure and not self._all_here:
            for folder in folders:  # the log itself must be in the log dir that is missing
                name = names.future_folder_name(*place, self._unique())
                self._fs.rename(folder.path, os.path.join(folder.log_dir.path, name))
            self._found[place] = []
            return
        chosen = max(sure or folders, key=lambda folder: folder.number)
        if chosen.note is not None and chosen.note.boot_id is not None:
            self._make_whole(chosen)
        stale = [each for each in folders if each not in sure or each.number < chosen.number]
        for folder in stale:
            if folder is not chosen:
                self._remove(place, folder, chosen.path)
                if folder.number > chosen.number:  # it was not whole: the move begins again
                    self.wanted.append((place, folder.log_dir))
        self._found[place] = [chosen]
        if chosen.note is not None and self._all_here:
            remove_note(self._fs, chosen.path)

    def _make_whole(self, folder: _Folder) -> None:
        """Sync all that a process which was killed has left, and say so; durable on return."""
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
    """Sort out what a crash left of moves; a log dir that cannot be read goes offline."""
    settlement = MoveRecovery(fs, all_here, unique)
    for log_dir in dirs:
        if log_dir.offline is None:
            try:
                settlement.look_through(log_dir)
            except OSError as error:
                log_dir.fail(error)
                return settle(fs, dirs, False, unique)
    settlement.settle()
    return settlement
