"""One log dir: a folder of partition folders, its lock, identity, format and checkpoints."""

from __future__ import annotations

import logging
import os
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from headrace.storage import names
from headrace.storage.dirs.checkpoints import CheckpointFolder, CorruptCheckpoint, Offsets
from headrace.storage.files import FileSystem, Lock

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
_CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'


class LogDirError(OSError):
    """A log dir cannot be used as it is; the message says what to do."""


class LogDir:
    """A folder that this process has locked; offline once its disk has failed."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        self.offline_error: OSError | None = None
        self.was_clean = False
        #: Whether the machine has not crashed since the last write here, so that no batch is lost.
        self.same_boot = False
        #: Whether it was ever formatted as a log dir; the folder of an unmounted disk was not.
        self.is_formatted = False
        self.identity: DirIdentity | None = None
        self._lock: Lock | None = None
        self._checkpoints: CheckpointFolder | None = None

    def open(self) -> None:
        """Create the folder if it is new, lock it, check its format, and read its identity.

        Raises OSError. A new folder has no format until `format`.
        """
        fs = self.fs
        self._make()
        try:
            self._lock = fs.lock(self._file(names.LOCK))
        except BlockingIOError:
            raise LogDirError(
                f"{self.path} is in use by another broker; stop it or choose another folder"
            ) from None
        self.is_formatted = fs.exists(self._file(names.FORMAT))
        if self.is_formatted:
            self._check_format()
        if fs.exists(self._file(names.META_PROPERTIES)):
            self.identity = DirIdentity.decode(fs.read(self._file(names.META_PROPERTIES)))
        self.was_clean = fs.exists(self._file(names.CLEAN_SHUTDOWN))
        boot = self._file(names.BOOT)
        boot_id = fs.boot_id().encode()
        self.same_boot = bool(boot_id) and fs.exists(boot) and fs.read(boot) == boot_id
        self._checkpoints = CheckpointFolder(fs, self.path)

    def fail(self, error: OSError) -> None:
        """Take the log dir offline until a restart."""
        if self.offline_error is None:
            _log.error("log dir %s is offline: %s", self.path, error)
            self.offline_error = error

    def check_owner(self, cluster_id: str, node_id: int) -> None:
        """Raise LogDirError for a folder of another cluster or node."""
        own = self.identity
        if own is None or (own.cluster_id, own.node_id) == (cluster_id, node_id):
            return
        raise LogDirError(
            f"{self.path} belongs to node {own.node_id} of cluster {own.cluster_id}, this is node "
            f"{node_id} of cluster {cluster_id}: check that the disk with the metadata is mounted, "
            "and log.dirs, metadata.log.dir and node.id. If the metadata is lost, "
            f"remove {self._file(names.META_PROPERTIES)}; the partitions here are then set aside"
        )

    def identify(self, identity: DirIdentity) -> None:
        """Write the identity of the log dir; durable when this returns."""
        self.fs.write_atomic(self._file(names.META_PROPERTIES), identity.encode())
        self.identity = identity

    def format(self) -> None:
        """Make durable that the folder is a log dir, if it is new."""
        if not self.is_formatted:
            self.fs.write_atomic(self._file(names.FORMAT), b"%d\n" % FORMAT_VERSION)
            self.is_formatted = True

    def partitions(self) -> list[tuple[str, int]]:
        """The partitions that have a folder here; raises OSError."""
        places = (names.parse_folder(name) for name in self.fs.list(self.path))
        return [place for place in places if place is not None]

    @property
    def checkpoints(self) -> CheckpointFolder:
        assert self._checkpoints is not None, "the log dir is not open"
        return self._checkpoints

    def read_checkpoint(self, name: str) -> tuple[Offsets, str | None]:
        """A checkpoint's offsets; empty, with the reason, if it is damaged."""
        try:
            return self.checkpoints.read(name), None
        except CorruptCheckpoint as error:
            return {}, str(error)

    def forget_clean_shutdown(self) -> None:
        """Make durable that the folder is in use, before the first append."""
        if self.was_clean:
            self.fs.remove(self._file(names.CLEAN_SHUTDOWN))
        self.fs.sync_dir(self.path)

    def remember_boot(self) -> None:
        """Write the present boot of the machine, once everything in the folder is synced.

        Not durable on purpose: after a power loss it must not be trusted.
        """
        if not self.same_boot:
            self.fs.write(self._file(names.BOOT), self.fs.boot_id().encode())

    def mark_clean_shutdown(self) -> None:
        """Make durable that all logs in the folder were saved."""
        self.fs.write_atomic(self._file(names.CLEAN_SHUTDOWN), _CLEAN_SHUTDOWN_CONTENT)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _make(self) -> None:
        """Create the folder and its missing parents, durably."""
        parent = os.path.dirname(self.path)
        parents = [parent]
        while not self.fs.exists(parent):
            parent = os.path.dirname(parent)
            parents.append(parent)
        if not self.fs.exists(self.path):
            self.fs.mkdir(self.path)
            for parent in parents:
                self.fs.sync_dir(parent)

    def _check_format(self) -> None:
        path = self._file(names.FORMAT)
        content = self.fs.read(path)
        try:
            version = int(content)
        except ValueError:
            raise LogDirError(f"{path} has no format version; restore it from a backup") from None
        if version != FORMAT_VERSION:
            raise LogDirError(
                f"{self.path} has format {version}, this version reads {FORMAT_VERSION}; "
                "use the version of headrace that wrote it"
            )

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


_VERSION = "1"
_DIRECTORY_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class DirIdentity:
    """`meta.properties`: the cluster and node that a log dir belongs to, and its permanent id.

    Written as Apache Kafka writes it.
    """

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        rows = {
            "version": _VERSION,
            "cluster.id": self.cluster_id,
            "node.id": self.node_id,
            "directory.id": self.directory_id,
        }
        return "".join(f"{name}={value}\n" for name, value in rows.items()).encode()

    @classmethod
    def decode(cls, data: bytes) -> DirIdentity | None:
        """The identity in a file; None if it is incomplete."""
        try:
            lines = data.decode("ascii").splitlines()
            rows = dict(line.split("=", 1) for line in lines if line and line[0] not in "#!")
            values = {name.strip(): value.strip() for name, value in rows.items()}
            if values["version"] != _VERSION:
                return None
            return cls(values["cluster.id"], int(values["node.id"]), values["directory.id"])
        except (ValueError, KeyError):
            return None


def directory_id(random_bits: int) -> str:
    """A new directory id from 128 random bits, in Kafka's form: 22 characters of base64."""
    return urlsafe_b64encode(random_bits.to_bytes(_DIRECTORY_ID_BYTES)).decode().rstrip("=")
