"""File systems that misbehave: one that fails on demand, one that loses power.

`FaultyFileSystem` wraps another and makes the n-th call of an operation fail or wait.

`PowerLossFileSystem` lives in memory and knows, at every moment, what is on stable storage: bytes
after a `sync` of their file, names after a `sync_dir` of their folder. `crash` makes the disk that
a machine could find after the power came back: all that is durable, and of the rest any part.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headrace.storage.files import Buffer, File, FileSystem, Lock, SyncFailed
from headrace.storage.os_files import OsFileSystem

# Operations that can be made to fail: those of File, then those of FileSystem.
FILE_OPERATIONS = ("append", "pread", "truncate", "sync")
SYSTEM_OPERATIONS = ("open", "read", "write", "sync_path", "rename", "remove", "sync_dir", "mkdir")


@dataclass
class Fault:
    """What happens to calls of one operation: from the nth on, this many times."""

    operation: str
    nth: int = 1
    times: int = 1
    error: int = errno.EIO
    path_has: str = ""
    gate: threading.Event | None = None
    calls: int = field(default=0, init=False)

    def hit(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.path_has not in path:
            return False
        self.calls += 1
        return self.nth <= self.calls < self.nth + self.times


class FaultyFileSystem:
    """Another file system's files, with faults on demand."""

    def __init__(self, inner: FileSystem | None = None) -> None:
        self.inner: FileSystem = inner or OsFileSystem()
        self.calls: list[tuple[str, str]] = []
        self._faults: list[Fault] = []

    def fail(
        self,
        operation: str,
        *,
        nth: int = 1,
        times: int = 1,
        error: int = errno.EIO,
        path_has: str = "",
    ) -> Fault:
        """Let the nth call from now on (and `times` in all) raise OSError."""
        fault = Fault(operation, nth, times, error, path_has)
        self._faults.append(fault)
        return fault

    def hold(self, operation: str, *, nth: int = 1, path_has: str = "") -> threading.Event:
        """Let the nth call from now on wait until the event returned is set."""
        gate = threading.Event()
        self._faults.append(Fault(operation, nth, 1, 0, path_has, gate))
        return gate

    def heal(self) -> None:
        """Forget all faults."""
        self._faults.clear()

    def happen(self, operation: str, path: str) -> None:
        """Count a call, and make it wait or fail if it is its turn."""
        self.calls.append((operation, path))
        for fault in list(self._faults):
            if fault.hit(operation, path):
                if fault.gate is not None:
                    fault.gate.wait()
                    continue
                kind = SyncFailed if operation.startswith("sync") else OSError
                raise kind(fault.error, os.strerror(fault.error), path)

    def open(self, path: str, create: bool = False, size: int | None = None) -> File:
        self.happen("open", path)
        return FaultyFile(self, self.inner.open(path, create, size))

    def read(self, path: str) -> bytes:
        self.happen("read", path)
        return self.inner.read(path)

    def write(self, path: str, data: Buffer) -> None:
        self.happen("write", path)
        self.inner.write(path, data)

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        self.write(temporary, data)
        self.sync_path(temporary)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        self.happen("sync_path", path)
        self.inner.sync_path(path)

    def rename(self, source: str, target: str) -> None:
        self.happen("rename", source)
        self.inner.rename(source, target)

    def remove(self, path: str) -> None:
        self.happen("remove", path)
        self.inner.remove(path)

    def rmtree(self, path: str) -> None:
        self.inner.rmtree(path)

    def list(self, path: str) -> list[str]:
        return self.inner.list(path)

    def mkdir(self, path: str) -> None:
        self.happen("mkdir", path)
        self.inner.mkdir(path)

    def sync_dir(self, path: str) -> None:
        self.happen("sync_dir", path)
        self.inner.sync_dir(path)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def is_dir(self, path: str) -> bool:
        return self.inner.is_dir(path)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def modified_ms(self, path: str) -> int:
        return self.inner.modified_ms(path)

    def free_bytes(self, path: str) -> int:
        return self.inner.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        return self.inner.total_bytes(path)

    def boot_id(self) -> str:
        return self.inner.boot_id()

    def lock(self, path: str) -> Lock:
        return self.inner.lock(path)


class FaultyFile:
    """A file whose calls may fail; a failed append leaves nothing behind, as the port promises."""

    def __init__(self, fs: FaultyFileSystem, inner: File) -> None:
        self._fs = fs
        self._inner = inner

    @property
    def path(self) -> str:
        return self._inner.path

    @path.setter
    def path(self, path: str) -> None:
        self._inner.path = path

    @property
    def size(self) -> int:
        return self._inner.size

    @size.setter
    def size(self, size: int) -> None:
        self._inner.size = size

    def append(self, data: Buffer) -> None:
        self._fs.happen("append", self.path)
        self._inner.append(data)

    def pread(self, length: int, offset: int) -> bytes | bytearray:
        self._fs.happen("pread", self.path)
        return self._inner.pread(length, offset)

    def pread_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        try:
            self._fs.happen("pread_nowait", self.path)
        except BlockingIOError:
            return None
        return self._inner.pread_nowait(length, offset)

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        data = self.pread_nowait(len(buffer), offset) or b""
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._fs.happen("truncate", self.path)
        self._inner.truncate(size)

    def reserve(self, size: int) -> None:
        self._inner.reserve(size)

    def trim(self) -> None:
        self._inner.trim()

    def sync(self) -> None:
        self._fs.happen("sync", self.path)
        self._inner.sync()

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        return self._inner.sendfile(socket_fd, offset, count)

    def hold(self) -> None:
        self._inner.hold()

    def close(self) -> None:
        self._inner.close()


@dataclass(eq=False)
class _Inode:
    """A file's bytes or a folder's names, as the process sees them and as they are durable."""

    is_dir: bool
    data: bytearray = field(default_factory=bytearray)
    durable_data: bytearray = field(default_factory=bytearray)
    names: dict[str, _Inode] = field(default_factory=dict)
    durable_names: dict[str, _Inode] = field(default_factory=dict)
    # Changes that are not durable yet, oldest first: of bytes for a file, of names for a folder.
    unsynced: list[_Write] = field(default_factory=list)


@dataclass(eq=False)
class _Write:
    """A write at an offset, or (without data) a truncation to it."""

    offset: int
    data: bytes | None

    def apply(self, target: bytearray) -> None:
        if self.data is None:
            del target[self.offset :]
            target.extend(bytes(self.offset - len(target)))
            return
        target.extend(bytes(max(0, self.offset - len(target))))
        target[self.offset : self.offset + len(self.data)] = self.data


@dataclass(eq=False)
class _NameChange:
    """A name that appears, moves (perhaps over another) or goes."""

    removed: tuple[_Inode, str] | None
    added: tuple[_Inode, str, _Inode] | None

    def touches(self, folder: _Inode) -> bool:
        return bool(
            (self.removed and self.removed[0] is folder) or (self.added and self.added[0] is folder)
        )

    def apply(self, names_of: Callable[[_Inode], dict[str, _Inode]]) -> None:
        if self.removed:
            names_of(self.removed[0]).pop(self.removed[1], None)
        if self.added:
            folder, name, inode = self.added
            names_of(folder)[name] = inode


class PowerCut(Exception):
    """Raised by the file system when the operation at which the power is to fail is reached."""


class PowerLossFileSystem:
    """A disk in memory that remembers what is durable.

    `operations` counts everything that changes the disk or makes changes durable. With
    `cut_at = n` the n-th such operation raises PowerCut and so does everything after it; the
    disk is then as a crash found it, to be looked at with `crash`.
    """

    def __init__(self) -> None:
        self._root = _Inode(is_dir=True)
        self._name_changes: list[_NameChange] = []
        self.operations = 0
        self.boots = 1
        self.cut_at: int | None = None
        self._lock = threading.RLock()

    # Crashing

    def crash(
        self,
        rng: random.Random | None = None,
        *,
        keep_probability: float = 0.5,
        reorder_names: bool = False,
    ) -> PowerLossFileSystem:
        """The disk after a crash at this moment.

        Without rng exactly what is durable survives. With it each unsynced write survives whole,
        in part or not at all, in any combination, and of the changes of names a random first
        part (or any subset, with reorder_names). `keep_probability=1` is a kill of the process.
        """
        after = PowerLossFileSystem()
        after.boots = self.boots if rng and keep_probability >= 1 else self.boots + 1
        copies: dict[int, _Inode] = {id(self._root): after._root}
        names: dict[int, dict[str, _Inode]] = {}

        def names_of(folder: _Inode) -> dict[str, _Inode]:
            return names.setdefault(id(folder), dict(folder.durable_names))

        for change in self._surviving_names(rng, keep_probability, reorder_names):
            change.apply(names_of)

        def copy(inode: _Inode) -> _Inode:
            twin = copies.get(id(inode))
            if twin is None:
                twin = copies[id(inode)] = _Inode(inode.is_dir)
            return twin

        def fill(inode: _Inode) -> None:
            twin = copy(inode)
            if inode.is_dir:
                for name, child in names_of(inode).items():
                    twin.names[name] = copy(child)
                    fill(child)
                twin.durable_names = dict(twin.names)
            else:
                twin.data = _surviving_bytes(inode, rng, keep_probability)
                twin.durable_data = bytearray(twin.data)

        fill(self._root)
        return after

    def _surviving_names(
        self, rng: random.Random | None, keep_probability: float, reorder: bool
    ) -> Iterator[_NameChange]:
        if rng is None:
            return
        if reorder:
            yield from (c for c in self._name_changes if rng.random() < keep_probability)
        elif keep_probability >= 1:
            yield from self._name_changes
        else:
            yield from self._name_changes[: rng.randint(0, len(self._name_changes))]

    def materialise(self, folder: Path) -> None:
        """Write the disk as the process sees it into a real folder."""

        def write(inode: _Inode, path: Path) -> None:
            if inode.is_dir:
                path.mkdir(exist_ok=True)
                for name, child in inode.names.items():
                    write(child, path / name)
            else:
                path.write_bytes(inode.data)

        write(self._root, folder)

    def flip(self, path: str, byte: int, bit: int) -> None:
        """Flip one bit of a file, on disk and in the cache."""
        inode = self._find(path)
        inode.data[byte] ^= 1 << bit
        if byte < len(inode.durable_data):
            inode.durable_data[byte] ^= 1 << bit

    def _operate(self) -> None:
        if self.cut_at is not None and self.operations >= self.cut_at:
            raise PowerCut(f"the power failed at operation {self.operations}")
        self.operations += 1

    # FileSystem

    def open(self, path: str, create: bool = False, size: int | None = None) -> File:
        with self._lock:
            folder, name = self._parent(path)
            inode = folder.names.get(name)
            if inode is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                inode = self._create(folder, name, is_dir=False)
            return _PowerLossFile(self, path, inode)

    def read(self, path: str) -> bytes:
        return bytes(self._find(path).data)

    def write(self, path: str, data: Buffer) -> None:
        with self._lock:
            folder, name = self._parent(path)
            inode = folder.names.get(name) or self._create(folder, name, is_dir=False)
            self.change(inode, _Write(0, None))
            self.change(inode, _Write(0, bytes(data)))

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        self.write(temporary, data)
        self.sync_path(temporary)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        self.sync_inode(self._find(path))

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            self._operate()
            from_folder, from_name = self._parent(source)
            to_folder, to_name = self._parent(target)
            inode = from_folder.names[from_name]
            self._change_names(_NameChange((from_folder, from_name), (to_folder, to_name, inode)))

    def remove(self, path: str) -> None:
        with self._lock:
            self._operate()
            folder, name = self._parent(path)
            if name not in folder.names:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._change_names(_NameChange((folder, name), None))

    def rmtree(self, path: str) -> None:
        inode = self._find(path)
        for name, child in list(inode.names.items()):
            if child.is_dir:
                self.rmtree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self.remove(path)

    def list(self, path: str) -> list[str]:
        return list(self._find(path).names)

    def mkdir(self, path: str) -> None:
        with self._lock:
            folder = self._root
            for name in _parts(path):
                folder = folder.names.get(name) or self._create(folder, name, is_dir=True)

    def sync_dir(self, path: str) -> None:
        with self._lock:
            self._operate()
            folder = self._find(path)
            kept = []
            for change in self._name_changes:
                if change.touches(folder):
                    change.apply(lambda inode: inode.durable_names)
                else:
                    kept.append(change)
            self._name_changes = kept

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def is_dir(self, path: str) -> bool:
        return self._find(path).is_dir

    def size(self, path: str) -> int:
        return len(self._find(path).data)

    def modified_ms(self, path: str) -> int:
        self._find(path)
        return 0

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 40

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def lock(self, path: str) -> Lock:
        return _NoLock()

    # Inodes

    def change(self, inode: _Inode, write: _Write) -> None:
        with self._lock:
            self._operate()
            write.apply(inode.data)
            inode.unsynced.append(write)

    def sync_inode(self, inode: _Inode) -> None:
        with self._lock:
            self._operate()
            for write in inode.unsynced:
                write.apply(inode.durable_data)
            inode.unsynced = []

    def _create(self, folder: _Inode, name: str, *, is_dir: bool) -> _Inode:
        self._operate()
        inode = _Inode(is_dir)
        self._change_names(_NameChange(None, (folder, name, inode)))
        return inode

    def _change_names(self, change: _NameChange) -> None:
        change.apply(lambda inode: inode.names)
        self._name_changes.append(change)

    def _find(self, path: str) -> _Inode:
        inode = self._root
        for name in _parts(path):
            child = inode.names.get(name)
            if child is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = child
        return inode

    def _parent(self, path: str) -> tuple[_Inode, str]:
        folder, name = os.path.split(path)
        return self._find(folder), name


class _PowerLossFile:
    def __init__(self, fs: PowerLossFileSystem, path: str, inode: _Inode) -> None:
        self._fs = fs
        self._inode = inode
        self.path = path
        self.size = len(inode.data)

    def append(self, data: Buffer) -> None:
        self._fs.change(self._inode, _Write(self.size, bytes(data)))
        self.size += len(data)

    def pread(self, length: int, offset: int) -> bytes | bytearray:
        return bytes(self._inode.data[offset : offset + length])

    def pread_nowait(self, length: int, offset: int) -> bytes | bytearray | None:
        return self.pread(length, offset)

    def pread_into(self, buffer: memoryview, offset: int) -> int:
        data = self.pread(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def truncate(self, size: int) -> None:
        self._fs.change(self._inode, _Write(size, None))
        self.size = size

    def reserve(self, size: int) -> None:
        pass

    def trim(self) -> None:
        pass

    def sync(self) -> None:
        self._fs.sync_inode(self._inode)

    def sendfile(self, socket_fd: int, offset: int, count: int) -> int:
        return os.write(socket_fd, self.pread(count, offset))

    def hold(self) -> None:
        pass

    def close(self) -> None:
        pass


class _NoLock:
    def release(self) -> None:
        pass


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _surviving_bytes(
    inode: _Inode, rng: random.Random | None, keep_probability: float
) -> bytearray:
    data = bytearray(inode.durable_data)
    if rng is None:
        return data
    for write in inode.unsynced:
        if rng.random() < keep_probability:
            _torn(write, rng, keep_probability).apply(data)
    return data


def _torn(write: _Write, rng: random.Random, keep_probability: float) -> _Write:
    """A write as it is, or only a part of it."""
    if write.data is None or keep_probability >= 1 or rng.random() < 0.5:
        return write
    start = rng.randint(0, len(write.data))
    end = rng.randint(start, len(write.data))
    return _Write(write.offset + start, write.data[start:end])
