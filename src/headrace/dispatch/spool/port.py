"""What the dispatcher asks of a spool, wherever it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.dispatch.spool.changes import Change, Entries

SYNC_POLICIES = ("always", "interval", "never")
# So often a spool is told that its node lives; with the policy `interval` it is synced then.
BEAT_SECONDS = 0.5


class Beat(NamedTuple):
    """What a beat has found: items taken over, and the own ones that are left if others were."""

    adopted: Entries | None = None
    kept: frozenset[str] | None = None


class Spool(Protocol):
    """Keeps changes; used by one thread at a time."""

    # Under this name the node is known to the others, also after a restart.
    node: str

    def recover(self) -> Entries:
        """Open it and return what is unfinished; SpoolBroken if that cannot be."""
        ...

    def write(self, changes: Sequence[Change]) -> None:
        """Keep changes; what was put is durable when this returns, as the sync policy says."""
        ...

    def beat(self, now_ms: int) -> Beat:
        """Say that this node lives, and take over from those that do not."""
        ...

    def close(self) -> None:
        """End; what is unfinished is kept for the next start, or handed over to other nodes."""
        ...


def check_policy(sync: str) -> str:
    """The sync policy, if it is one."""
    if sync not in SYNC_POLICIES:
        raise ValueError(f"sync={sync!r} is none of {', '.join(SYNC_POLICIES)}")
    return sync
