"""Which log dirs are present, which are new, and which are missing.

A disk that is not mounted leaves an empty folder, which looks like a new one. Using it would create
its partitions again, empty. So every log dir has an id in its `meta.properties`, and the metadata
remembers the ids. A log dir whose id is in no folder is missing, and then no partition is created
that may be in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from headrace.storage.dirs.log_dir import DirIdentity, LogDir, LogDirError, directory_id

_log = logging.getLogger(__name__)

GIVEN_UP_SETTING = "headrace.log.dirs.lost"


class DirInventory:
    """Compares the log dirs of one node with those it had before."""

    def __init__(
        self, dirs: Sequence[LogDir], cluster_id: str, node_id: int, known: Mapping[str, str]
    ) -> None:
        self._dirs = dirs
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._known = known

    def missing(
        self, partitions: Collection[tuple[str, int]], given_up: Collection[str]
    ) -> dict[str, str]:
        """The known log dirs, ids by path, that are missing, if partitions are missing too.

        Log dirs that are given up do not count. An empty folder in place of one goes offline.
        Raises LogDirError for a folder of another cluster or node, and if two have the same id.
        """
        found: dict[str, str] = {}
        here: set[tuple[str, int]] = set()
        for log_dir in self._online():
            log_dir.check_owner(self._cluster_id, self._node_id)
            its_id = self._id_of(log_dir)
            if its_id is not None:
                if its_id in found:
                    raise LogDirError(
                        f"{log_dir.path} and {found[its_id]} are both log dir {its_id}: one is a "
                        "copy; remove it from log.dirs"
                    )
                found[its_id] = log_dir.path
            try:
                here.update(log_dir.partitions())
            except OSError as error:
                log_dir.fail(error)
        missing = {
            path: its_id
            for path, its_id in self._known.items()
            if its_id not in found and its_id not in given_up
        }
        if here.issuperset(partitions):
            return {}  # every partition is here
        self._report(missing)
        return missing

    def _id_of(self, log_dir: LogDir) -> str | None:
        """A log dir's id; if its file is lost, the id that the metadata knows."""
        if log_dir.identity is not None:
            return log_dir.identity.directory_id
        return self._known.get(log_dir.path) if log_dir.is_formatted else None

    def _report(self, missing: Mapping[str, str]) -> None:
        dirs = {log_dir.path: log_dir for log_dir in self._dirs}
        for path, its_id in missing.items():
            log_dir = dirs.get(path)
            remedy = f"to give up its data, set {GIVEN_UP_SETTING}={its_id}"
            if log_dir is None or log_dir.is_formatted:
                _log.error("log dir %s, last seen at %s, is missing; %s", its_id, path, remedy)
            else:
                reason = f"the folder is empty, but it was log dir {its_id}: mount its disk, or, "
                log_dir.fail(LogDirError(reason + remedy))

    def identify(self, random_bits: Callable[[int], int]) -> dict[str, str]:
        """Give new log dirs an id, durably; returns all ids by path."""
        ids = {}
        for log_dir in self._online():
            try:
                if log_dir.identity is None:
                    its_id = self._id_of(log_dir) or directory_id(random_bits(128))
                    log_dir.identify(DirIdentity(self._cluster_id, self._node_id, its_id))
                assert log_dir.identity is not None
                ids[log_dir.path] = log_dir.identity.directory_id
            except OSError as error:
                log_dir.fail(error)
        return ids

    def _online(self) -> list[LogDir]:
        return [log_dir for log_dir in self._dirs if log_dir.offline_error is None]
