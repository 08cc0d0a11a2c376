"""A ZooKeeper connection: kazoo's, with watches on whole subtrees and the timeout as agreed on.

ZooKeeper has persistent recursive watches since 3.6, and kazoo 2.11 does not offer them. Without
them, a node would need one watch for every entry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import Watch, int_struct, write_string

_PERSISTENT_RECURSIVE = 1
_RETRY = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}

_log = logging.getLogger("headrace.zookeeper")


@dataclass(frozen=True)
class AddWatch:
    """The request for a watch that stays, on a path and all below it."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """The bytes of the request."""
        packed: bytes = write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE)
        return packed

    @classmethod
    def deserialize(cls, _data: bytes, _offset: int) -> bool:
        """The answer says nothing more than that it is done."""
        return True


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    def _connect(self, *args: Any) -> Any:
        read_timeout_ms, connect_timeout_ms = super()._connect(*args)
        # kazoo reads for two thirds of the timeout before it gives a connection up.
        self.client.negotiated_ms = round(read_timeout_ms * 3 / 2)
        return read_timeout_ms, connect_timeout_ms

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        self.client.on_event(self.client.unchroot(event.path))
        super()._read_watch_event(buffer, offset)


class ZooKeeperClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """One connection and its session."""

    # Called in a thread of kazoo's with the path of every entry that a watch covers.
    on_event: Callable[[str], None]
    # The session's timeout, which the servers may have made longer or shorter.
    negotiated_ms: int

    def __init__(self, hosts: str, timeout_ms: int) -> None:
        super().__init__(hosts, timeout=timeout_ms / 1000, connection_retry=_RETRY, logger=_log)
        self.on_event = lambda _path: None
        self.negotiated_ms = timeout_ms
        self._connection = _Connection(self, self._conn_retry.copy(), logger=_log)

    def watch_below_async(self, path: str) -> Any:
        """Ask for events of a path and all below it until the connection ends."""
        result = self.handler.async_result()
        self._call(AddWatch(_prefix_root(self.chroot, path)), result)
        return result
