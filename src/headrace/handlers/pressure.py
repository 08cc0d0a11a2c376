"""Back-pressure: which partitions rest, so that memory is bounded and none starves another.

Pure. A load is a share of the handler's buffer, counted in messages and in bytes, whichever is
the larger. One partition may fill an eighth of the buffer (all of it when it is alone); once the
whole is full, each may have only its equal share, so an idle partition is never made to rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from headrace.protocol.partitions import TopicPartition

# Pausing throws away what the client has fetched ahead, so a short wait comes first.
GRACE_MS = 50
HOT_PARTITIONS = 8

# Topic and partition.


@dataclass(frozen=True, slots=True)
class PressureLimits:
    """The buffer of one handler, and how long it takes to open up after a start."""

    messages: int
    bytes: int
    slow_start_ms: int = 0
    grace_ms: int = GRACE_MS

    def messages_at(self, elapsed_ms: int) -> int:
        """The buffer that is open after so long: it doubles at equal steps, from one message."""
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
    """What to do now: partitions to pause and resume, and how many messages may be polled.

    When `all_paused`, a poll brings nothing, but it keeps the group's membership.
    """

    pause: frozenset[TopicPartition]
    resume: frozenset[TopicPartition]
    room: int
    over: frozenset[TopicPartition]
    all_paused: bool = False


class PressureControl:
    """Decides from the loads of the assigned partitions; remembers which of them rest."""

    def __init__(self, limits: PressureLimits, strict: bool = False) -> None:
        self.limits = limits
        self._strict = strict
        self._resting: set[TopicPartition] = set()
        self._over_since_ms: dict[TopicPartition, int] = {}

    def forget(self, places: Iterable[TopicPartition]) -> None:
        """These were taken away; if they come again, they do not rest."""
        self._resting.difference_update(places)

    @property
    def open_plan(self) -> PollPlan:
        """Nothing rests, and there is room."""
        return PollPlan(frozenset(), frozenset(), self.limits.messages, frozenset())

    def is_calm(self, messages: int, bytes_: int, elapsed_ms: int) -> bool:
        """Whether so little is in memory that no partition can be over, and none rests."""
        limits = self.limits
        return (
            not self._resting
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
        """Partitions over their mark rest after a grace, and go on at half of it.

        Those that are `stuck` behind an unfinished message rest whatever they hold.
        """
        messages_most = self.limits.messages_at(elapsed_ms)
        shares = {
            key: max(load.messages / messages_most, load.bytes / self.limits.bytes)
            for key, load in loads.items()
        }
        total = sum(load.messages for load in loads.values())
        full = sum(shares.values()) >= 1
        mark = self._mark(len(loads), messages_most, full)
        over = frozenset(
            key
            for key, share in shares.items()
            if share >= mark or (full and self._strict) or key in stuck
        )
        self._resting &= loads.keys()
        resume = frozenset(
            key for key in self._resting - over if self._strict or shares[key] <= mark / 2
        )
        since = self._over_since_ms = {
            key: self._over_since_ms.get(key, now_ms) for key in over - self._resting
        }
        pause = frozenset(
            key for key, since_ms in since.items() if now_ms - since_ms >= self.limits.grace_ms
        )
        self._resting |= pause
        self._resting -= resume
        waiting = over - self._resting
        room = 0 if waiting else messages_most - total if self._strict else messages_most
        all_paused = self._resting == loads.keys()
        return PollPlan(pause, resume, max(0, room), over, all_paused)

    def _mark(self, partitions: int, messages_most: int, full: bool) -> float:
        """The share of the buffer from which on a partition is over."""
        if self._strict:
            return 1.0
        shared_by = partitions if full else min(partitions, HOT_PARTITIONS)
        # At least one message each, however many partitions there are.
        return max(1 / max(1, shared_by), 1 / messages_most)
