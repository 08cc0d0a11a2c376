"""A body store of files: a local folder, or anything that fsspec opens (S3, HDFS, SFTP)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

from headrace.errors import HandlerError
from headrace.large.body_store import StoredBody, checked, is_name
from headrace.large.errors import BodyMissing, BodyStoreUnavailable

T = TypeVar("T")
# How much of a file is read at once.
STEP_BYTES = 262_144


class BodyFiles:
    """A folder for each cluster, with a folder for each topic.

    A file is written under its final name, since a rename is a copy in most object stores. That is
    safe: names are unique, and a record with the name is sent only when the file is complete.
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
        # An error from reading the pieces is the caller's: it must not look like ours.
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
                raise BodyMissing(
                    f"body {name} does not exist in {self._url}",
                    "give sender and reader the same claims=URL; check that it was not collected",
                ) from None

        file = ask(lambda: self._files.open(path, "rb"))
        # An object store is asked at every read, so every read may find it unavailable.
        return io.BufferedReader(_GuardedFile(file, ask), STEP_BYTES)

    def list(self) -> Iterator[StoredBody]:
        try:
            found = self._ask(lambda: self._files.find(self._root, detail=True))
        except FileNotFoundError:
            return
        for path, details in found.items():
            name = "/".join(path.split("/")[-3:])
            if is_name(name):
                yield StoredBody(name, int(details["size"] or 0))

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            path = self._path(checked(name))
            with contextlib.suppress(FileNotFoundError):
                self._ask(lambda: self._files.rm_file(path))  # noqa: B023

    def close(self) -> None:
        """Nothing to close: fsspec shares its file systems."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _ask(self, question: Callable[[], T]) -> T:
        try:
            return question()
        except FileNotFoundError:
            raise
        except Exception as problem:
            # Remote file systems raise the errors of many libraries.
            if self._is_local and not isinstance(problem, OSError):
                raise
            raise BodyStoreUnavailable(
                f"the body store {self._url} cannot be reached: {problem}"
            ) from problem


class _GuardedFile(io.RawIOBase):
    """A file whose every read goes through `ask`, which translates errors."""

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
        # Garbage collection must not work on an old listing.
        files, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ImportError, ValueError) as problem:
        raise HandlerError(
            f"claims={url!r} cannot be opened: {problem}",
            "use a folder, a URL of fsspec (s3://BUCKET/FOLDER, webhdfs://USER@HOST:9870/FOLDER) "
            "or the URL of a database",
        ) from None
    return files, root


def _sync_folder(path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(Path(path), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
