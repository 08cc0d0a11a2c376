"""Back-pressure: which partitions are paused, so that memory is bounded and none starves another.

Pure. A load is a share of the handler's buffer, in messages or in bytes, whichever is larger. One
partition may fill an eighth of the buffer (all of it when it is alone); once the whole is full,
each may have only its equal share, so an idle partition is never paused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.protocol.partitions import TopicPartition

# Pausing discards what the client has fetched ahead, so a short wait comes first.
GRACE_MS = 50
HOT_PARTITIONS = 8


@dataclass(frozen=True, slots=True)
class PressureLimits:
    """The buffer of one handler, and how slowly it grows after a start."""

    messages: int
    bytes: int
    slow_start_ms: int = 0
    grace_ms: int = GRACE_MS

    def messages_at(self, elapsed_ms: int) -> int:
        """The size of the buffer after this time; it doubles at equal steps, from one message."""
        if elapsed_ms >= self.slow_start_ms:
            return self.messages
        return max(1, int(self.messages ** (max(0, elapsed_ms) / self.slow_start_ms)))


@dataclass(frozen=True, slots=True)
class Load:
    """What one partition has in memory."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PollPlan:
    """What to do now: partitions to pause and resume, and how many messages to poll.

    When `all_paused`, a poll returns nothing, but it keeps the membership in the group.
    """

    pause: frozenset[TopicPartition]
    resume: frozenset[TopicPartition]
    room: int
    over: frozenset[TopicPartition]
    all_paused: bool = False


class PressureControl:
    """Plans polls from the loads of the assigned partitions; remembers which are paused."""

    def __init__(self, limits: PressureLimits, strict: bool = False) -> None:
        self.limits = limits
        self._strict = strict
        self._paused: set[TopicPartition] = set()
        self._over_since_ms: dict[TopicPartition, int] = {}

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """Forget revoked partitions; if they are assigned again, they are not paused."""
        self._paused.difference_update(places)

    @property
    def open_plan(self) -> PollPlan:
        """The plan when nothing is paused and there is room."""
        return PollPlan(frozenset(), frozenset(), self.limits.messages, frozenset())

    def is_calm(self, messages: int, bytes_: int, elapsed_ms: int) -> bool:
        """Whether nothing is paused and too little is in memory to pause any partition."""
        limits = self.limits
        return (
            not self._paused
            and not self._strict
            and elapsed_ms >= limits.slow_start_ms
            and messages * HOT_PARTITIONS < limits.messages
            and bytes_ * HOT_PARTITIONS < limits.bytes
        )

    def plan(
        self,
        loads: Mapping[TopicPartition, Load],
        elapsed_ms: int,
        now_ms: int,
        stuck: Collection[TopicPartition] = (),
    ) -> PollPlan:
        """Pause partitions that are over their mark for longer than the grace time; resume at half.

        Those that are `stuck` behind an unfinished message are paused whatever they hold.
        """
        messages_max = self.limits.messages_at(elapsed_ms)
        shares = {
            key: max(load.messages / messages_max, load.bytes / self.limits.bytes)
            for key, load in loads.items()
        }
        total = sum(load.messages for load in loads.values())
        full = sum(shares.values()) >= 1
        mark = self._mark(len(loads), messages_max, full)
        over = frozenset(
            key
            for key, share in shares.items()
            if share >= mark or (full and self._strict) or key in stuck
        )
        self._paused &= loads.keys()
        resume = frozenset(
            key for key in self._paused - over if self._strict or shares[key] <= mark / 2
        )
        since = self._over_since_ms = {
            key: self._over_since_ms.get(key, now_ms) for key in over - self._paused
        }
        pause = frozenset(
            key for key, since_ms in since.items() if now_ms - since_ms >= self.limits.grace_ms
        )
        self._paused |= pause
        self._paused -= resume
        waiting = over - self._paused
        room = 0 if waiting else messages_max - total if self._strict else messages_max
        all_paused = self._paused == loads.keys()
        return PollPlan(pause, resume, max(0, room), over, all_paused)

    def _mark(self, partitions: int, messages_max: int, full: bool) -> float:
        """The share of the buffer at which a partition is over."""
        if self._strict:
            return 1.0
        shared_by = partitions if full else min(partitions, HOT_PARTITIONS)
        # At least one message each, however many partitions there are.
        return max(1 / max(1, shared_by), 1 / messages_max)
