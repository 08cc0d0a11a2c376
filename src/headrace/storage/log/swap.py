"""Replacing segments by the compacted ones made from them, safe at every step.

The cleaner leaves `BASE.log.cleaned` and its indexes beside the old segments, synced. Then:

1. the plan (which bases go, which files replace them) is written atomically: the swap is decided;
2. `.cleaned` becomes `.swap`, and the folder is synced;
3. the old segments become `.deleted`, and the folder is synced;
4. `.swap` loses its suffix, the folder is synced, and the plan is removed.

A swap that a crash interrupted after 1 is completed on opening: the plan tells old files from new
ones with the same name.
A crash before 1 leaves `.cleaned` files, which are removed. The names are Apache Kafka's, which
would complete or undo the same states.

Compaction leaves gaps between segments, which recovery would otherwise consider lost tails: how far
the log was compacted is kept, with a checksum, in `compacted-upto` and is durable before step 1.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from headrace.storage import names
from headrace.storage.files import FileSystem, is_passing
from headrace.storage.log.scan import BadBatch, iter_headers
from headrace.storage.log.segment import Segment

if TYPE_CHECKING:
    from headrace.storage.log.log import Log

PLAN = "swap-plan"
COMPACTED_UPTO = "compacted-upto"


class Swap:
    """One swap: made and completed on the loop thread, run on any other.

    Readers use the old segments until it is completed, and may keep pieces of them afterwards.
    """

    def __init__(self, log: Log, old_bases: Sequence[int], new_bases: Sequence[int]) -> None:
        known = [segment.base_offset for segment in log.segments]
        first = known.index(old_bases[0]) if old_bases and old_bases[0] in known else -1
        if first < 0 or known[first : first + len(old_bases)] != list(old_bases):
            raise ValueError(f"{list(old_bases)} are not adjacent in {log.dir}")
        if first + len(old_bases) >= len(known):
            raise ValueError("the active segment cannot be replaced")
        if log.swap is not None:
            raise ValueError(f"another swap is running in {log.dir}")
        self.log = log
        self.error: OSError | None = None
        self._fs = log.fs
        self._first = first
        self._old = log.segments[first : first + len(old_bases)]
        self._new_bases = list(new_bases)
        self._compacted_upto = known[first + len(old_bases)]
        self._decided = False
        self._running = threading.Lock()
        log.swap = self
        for segment in self._old:
            segment.hold()

    def run(self) -> None:
        """Exchange the files, unless the log was deleted meanwhile.

        A failure is kept in `error`; the next opening completes the swap.
        """
        with self._running:
            if not self.log.deleted:
                self._exchange(self.log.dir)

    def wait(self) -> None:
        """Wait until no exchange of files is running."""
        with self._running:
            return

    def _exchange(self, folder: str) -> None:
        try:
            _raise_compacted_upto(self._fs, folder, self._compacted_upto)
            present = set(self._fs.list(folder))
            files = [
                name
                for base in self._new_bases
                for suffix in names.SEGMENT_SUFFIXES
                if (name := names.offset_name(base, suffix)) + names.CLEANED in present
            ]
            plan = _Plan([segment.base_offset for segment in self._old], files)
            path = os.path.join(folder, PLAN)
            self._fs.write(path + names.TEMPORARY, plan.encode())
            self._fs.sync_path(path + names.TEMPORARY)
            self._fs.sync_dir(folder)  # or the plan might become durable before the new files
            self._decided = True
            self._fs.rename(path + names.TEMPORARY, path)
            self._fs.sync_dir(folder)
            plan.execute(self._fs, folder)
        except OSError as error:
            self.error = error

    def complete(self, now_ms: int) -> None:
        """Let readers use the new segments; after a failure the log is offline.

        It is not after a passing error, such as a full disk, that came before the plan.
        """
        log = self.log
        log.swap = None
        if log.deleted:
            return
        if self.error is not None:
            if self._decided or not is_passing(self.error):
                log.offline_error = log.offline_error or self.error
            return
        for segment in self._old:
            segment.renamed(names.DELETED)
            log.delete_later(segment, now_ms)
        sizes = {
            name: self._fs.size(os.path.join(log.dir, name))
            for base in self._new_bases
            for suffix in names.SEGMENT_SUFFIXES
            if self._fs.exists(os.path.join(log.dir, name := names.offset_name(base, suffix)))
        }
        new = [Segment.open(self._fs, log.dir, base, sizes, now_ms) for base in self._new_bases]
        after = self._first + len(self._old)
        log.set_segments([*log.segments[: self._first], *new, *log.segments[after:]])


class _Plan:
    """The segments to replace and their new files, as kept in the plan file."""

    def __init__(self, old_bases: list[int], files: list[str]) -> None:
        self.old_bases = old_bases
        self.files = files

    def encode(self) -> bytes:
        rows = [f"old {base}" for base in self.old_bases] + [f"new {name}" for name in self.files]
        return _sealed("\n".join(rows))

    @classmethod
    def decode(cls, data: bytes) -> _Plan | None:
        """The plan, or None for an incomplete one."""
        text = _unsealed(data)
        if text is None:
            return None
        rows = [row.split(" ") for row in text.splitlines()]
        return cls(
            [int(value) for kind, value in rows if kind == "old"],
            [value for kind, value in rows if kind == "new"],
        )

    def execute(self, fs: FileSystem, folder: str) -> None:
        """Bring the folder to the planned state, also from the middle of an earlier try."""
        present = set(fs.list(folder))

        def rename(source: str, target: str) -> None:
            if source in present:
                fs.rename(os.path.join(folder, source), os.path.join(folder, target))
                present.discard(source)
                present.add(target)

        for name in self.files:
            rename(name + names.CLEANED, name + names.SWAP)
        fs.sync_dir(folder)
        for base in self.old_bases:
            for suffix in names.SEGMENT_SUFFIXES:
                name = names.offset_name(base, suffix)
                # A planned file without a .swap file is the new one, already in place.
                if name not in self.files or name + names.SWAP in present:
                    rename(name, name + names.DELETED)
        fs.sync_dir(folder)
        for name in self.files:
            rename(name + names.SWAP, name)
        fs.sync_dir(folder)
        fs.remove(os.path.join(folder, PLAN))


def finish_swaps(fs: FileSystem, folder: str, present: set[str]) -> bool:
    """Complete a swap that a crash interrupted; returns whether anything was changed."""
    if PLAN in present:
        path = os.path.join(folder, PLAN)
        plan = _Plan.decode(fs.read(path))
        if plan is not None:
            plan.execute(fs, folder)
        else:
            fs.remove(path)  # incomplete, so not durable, so no step followed it
        return True
    swaps = [name for name in present if name.endswith(names.SWAP)]
    if not swaps:
        return False
    _finish_foreign(fs, folder, present, swaps)
    return True


def _finish_foreign(fs: FileSystem, folder: str, present: set[str], swaps: list[str]) -> None:
    """Complete or undo a swap that Apache Kafka left without a plan."""
    undecided = any(name.endswith(names.LOG + names.CLEANED) for name in present)
    for name in [] if undecided else swaps:
        base = names.parse_offset(name, names.LOG + names.SWAP)
        if base is None:
            continue
        end_offset = _end_offset(fs, os.path.join(folder, name), base)
        for old in present:
            old_base = names.parse_offset(old, names.LOG)
            if old_base is not None and base <= old_base < max(end_offset, base + 1):
                fs.rename(os.path.join(folder, old), os.path.join(folder, old + names.DELETED))
    for name in swaps:
        path = os.path.join(folder, name)
        if undecided:
            fs.remove(path)
        else:
            fs.rename(path, path.removesuffix(names.SWAP))
    fs.sync_dir(folder)


def _end_offset(fs: FileSystem, path: str, base_offset: int) -> int:
    file = fs.open(path)
    end_offset = base_offset
    try:
        for _, header in iter_headers(file, 0, file.size):
            end_offset = header.next_offset
    except BadBatch:
        pass  # only the range up to the damage is known
    file.close()
    return end_offset


def compacted_upto(fs: FileSystem, folder: str) -> int:
    """The offset below which gaps between segments come from compaction."""
    path = os.path.join(folder, COMPACTED_UPTO)
    if not fs.exists(path):
        return 0
    text = _unsealed(fs.read(path))
    # Damaged: any gap may come from compaction, and keeping data is the safer mistake.
    return int(text) if text is not None else 1 << 63


def _raise_compacted_upto(fs: FileSystem, folder: str, offset: int) -> None:
    if compacted_upto(fs, folder) < offset:
        fs.write_atomic(os.path.join(folder, COMPACTED_UPTO), _sealed(str(offset)))


def _sealed(text: str) -> bytes:
    return f"{crc32c(text.encode()):08x}\n{text}\n".encode()


def _unsealed(data: bytes) -> str | None:
    first, _, rest = data.partition(b"\n")
    rest = rest.removesuffix(b"\n")
    if f"{crc32c(rest):08x}".encode() != first:
        return None
    return rest.decode()
