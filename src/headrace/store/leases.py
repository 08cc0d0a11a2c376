"""Leases: one owner at a time for work that several processes could do."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable

from headrace.client.clock import Clock
from headrace.store.transaction import Transaction


def owner_name() -> str:
    """A new name for an owner of leases in this process."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def take_lease(tx: Transaction, name: str, owner: str, ttl_ms: int) -> bool:
    """Take or renew a lease within `tx`; False while another owner has it.

    A lease saves work and keeps order; it does not exclude a second owner. One that slept too
    long, or whose clock is wrong, works for a moment beside the next one.
    """
    taken = tx.execute(
        "INSERT INTO headrace_leases (name, owner, until_ms) VALUES (:name, :owner, :until_ms) "
        "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms "
        "WHERE headrace_leases.owner = excluded.owner OR headrace_leases.until_ms <= :now_ms",
        {"name": name, "owner": owner, "until_ms": tx.now_ms + ttl_ms, "now_ms": tx.now_ms},
    )
    return taken.rowcount == 1


def drop_lease(tx: Transaction, name: str, owner: str) -> None:
    """Give a lease back, so that the next owner need not wait for its end."""
    tx.execute(
        "UPDATE headrace_leases SET until_ms = 0 WHERE name = :name AND owner = :owner",
        {"name": name, "owner": owner},
    )


class Lease:
    """A lease as its owner or a stand-by sees it; asks the database rarely."""

    def __init__(
        self, begin: Callable[[], Transaction], clock: Clock, name: str, owner: str, ttl_ms: int
    ) -> None:
        self._begin = begin
        self._clock = clock
        self._name = name
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._until_ms = 0
        self._ask_at_ms = 0

    @property
    def is_held(self) -> bool:
        """Whether it was held when last asked for."""
        return self._until_ms > 0

    def hold(self) -> bool:
        """Whether it is held now; renewed when half of its time is over."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._until_ms - self._ttl_ms // 2:
            return True
        if not self._until_ms and now_ms < self._ask_at_ms:
            return False
        self._ask_at_ms = now_ms + self._ttl_ms // 5
        with self._begin() as tx:
            is_mine = take_lease(tx, self._name, self._owner, self._ttl_ms)
        self._until_ms = now_ms + self._ttl_ms if is_mine else 0
        return is_mine

    def forget(self) -> None:
        """Ask the database before the next use."""
        self._until_ms = 0

    def drop(self) -> None:
        """Give it back, if it is held."""
        if self._until_ms:
            self._until_ms = 0
            with self._begin() as tx:
                drop_lease(tx, self._name, self._owner)
