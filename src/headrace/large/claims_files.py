"""Bodies as files: in a local folder, or wherever fsspec reaches (S3, HDFS, SFTP, memory)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from headrace.errors import HandlerError
from headrace.large.claims import Stored, checked, is_name
from headrace.large.errors import ClaimMissing, ClaimsAway

T = TypeVar("T")
# What is read of a file at once.
STEP_BYTES = 262_144


class FileClaims:
    """A folder with a folder for each cluster, and therein one for each topic.

    Names are unique and go out with records only when the file is whole, so nothing is renamed:
    that would be a copy in most object stores.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._files, root = _open(url)
        self._root = str(root).rstrip("/")
        protocol = self._files.protocol
        self._is_local = "file" in ((protocol,) if isinstance(protocol, str) else protocol)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        path = self._path(name)
        folder = path.rpartition("/")[0]
        self._ask(lambda: self._files.makedirs(folder, exist_ok=True))
        # What reading the pieces raises is the caller's, and must not look like a place away.
        file = self._ask(lambda: self._files.open(path, "wb"))
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: self._ask(file.close))
            for piece in pieces:
                self._ask(lambda: file.write(piece))  # noqa: B023
            if self._is_local:
                self._ask(file.flush)
                self._ask(lambda: os.fsync(file.fileno()))
        if self._is_local:
            for made in (folder, folder.rpartition("/")[0], self._root):
                self._ask(lambda: _sync_folder(made))  # noqa: B023

    def open(self, name: str) -> IO[bytes]:
        path = self._path(checked(name))

        def ask(question: Callable[[], T]) -> T:
            try:
                return self._ask(question)
            except FileNotFoundError:
                raise ClaimMissing(
                    f"there is no body {name} in {self._url}",
                    "do sender and reader have the same claims=URL? was it collected as garbage?",
                ) from None

        file = ask(lambda: self._files.open(path, "rb"))
        # Object stores are asked with each step, so that any of them may find the place away.
        return io.BufferedReader(_Asked(file, ask), STEP_BYTES)

    def list(self) -> Iterator[Stored]:
        try:
            found = self._ask(lambda: self._files.find(self._root, detail=True))
        except FileNotFoundError:
            return
        for path, details in found.items():
            name = "/".join(path.split("/")[-3:])
            if is_name(name):
                yield Stored(name, int(details["size"] or 0))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(checked(name))
            with contextlib.suppress(FileNotFoundError):
                self._ask(lambda: self._files.rm_file(path))  # noqa: B023

    def close(self) -> None:
        """Nothing to let go of: fsspec keeps file systems for all."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except FileNotFoundError:
            raise
        except Exception as problem:
            # What is remote fails with the errors of many a library.
            if self._is_local and not isinstance(problem, OSError):
                raise
            raise ClaimsAway(f"bodies at {self._url} cannot be reached: {problem}") from problem


class _Asked(io.RawIOBase):
    """A file whose every step is asked in the same way."""

    def __init__(self, file: IO[bytes], ask: Callable[[Callable[[], Any]], Any]) -> None:
        self._file = file
        self._ask = ask

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        room = memoryview(buffer).cast("B")
        found: bytes = self._ask(lambda: self._file.read(len(room)))
        room[: len(found)] = found
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise HandlerError("claim checks need fsspec", "pip install 'headrace[large]'") from None
    try:
        # A listing of an hour ago would let garbage collection work on what is not so any more.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as problem:
        raise HandlerError(
            f"claims={url!r} cannot be opened: {problem}",
            "a folder, or a URL that fsspec knows (s3://BUCKET/FOLDER, "
            "webhdfs://USER@HOST:9870/FOLDER), or a database's",
        ) from None
    return files, root


def _sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(Path(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
