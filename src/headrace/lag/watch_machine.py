"""Moves groups between alarm levels, and decides when to send notices; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.lag.group_lag import GroupLag
from headrace.lag.levels import GroupLevels, Level, Reading, read
from headrace.lag.notices import Notice
from headrace.lag.rules import LagConfig, Rule

# For groups without a rule, which may still be at a level from before.
_NO_RULE = Rule(notify=())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLevel:
    """The level of a group, as it is stored in the topic of levels."""

    level: Level = Level.OK
    was: Level = Level.OK
    since_ms: int = 0
    """When the group reached this level, in wall time."""
    is_notified: bool = True
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class Change:
    """A level to store, and then a notice to send."""

    stored: StoredLevel
    notice: Notice
    notify: tuple[str, ...]


class LagWatch:
    """Takes measurements and returns what has changed, starting from known levels."""

    def __init__(self, config: LagConfig, known: Mapping[str, StoredLevel], now_ms: int) -> None:
        self._config = config
        self._stored = dict(known)
        self._levels = {name: GroupLevels.at(stored.level) for name, stored in known.items()}
        # In monotonic time; a predecessor has sent its repetitions.
        self._notified_ms = dict.fromkeys(known, now_ms)

    @property
    def levels(self) -> dict[str, StoredLevel]:
        """Groups with a raised level, or with a notice that is still to be sent."""
        return dict(self._stored)

    def update(
        self, groups: Iterable[GroupLag], at_ms: int, now_ms: int, silent: Collection[str] = ()
    ) -> list[Change]:
        """The changes by a measurement, at a wall time and a monotonic time.

        A group that is gone has no lag; a `silent` group is unknown and keeps its level.
        """
        seen = {group.group: group for group in groups}
        changes = []
        for name in sorted({*seen, *self._stored}):
            if name not in seen and name in silent:
                continue
            group = seen.get(name) or GroupLag(group=name, state="Dead")
            change = self._step(group, at_ms, now_ms)
            if change is not None:
                changes.append(change)
        self._levels = {
            name: levels for name, levels in self._levels.items() if levels != GroupLevels()
        }
        return changes

    def unsent(self, at_ms: int) -> list[Change]:
        """Notices that a predecessor may not have sent."""
        return [
            Change(
                stored,
                Notice(
                    group=name,
                    level=stored.level,
                    was=stored.was,
                    reading=stored.reading,
                    at_ms=at_ms,
                ),
                self._rule(name).notify,
            )
            for name, stored in sorted(self._stored.items())
            if not stored.is_notified
        ]

    def sent(self, notice: Notice) -> StoredLevel | None:
        """Note that a notice was sent; returns the level to store, None if it has changed since."""
        stored = self._stored.get(notice.group)
        if stored is None or stored.is_notified or stored.level is not notice.level:
            return None
        stored = replace(stored, is_notified=True)
        if stored.level is Level.OK:
            del self._stored[notice.group]
        else:
            self._stored[notice.group] = stored
        return stored

    def _step(self, group: GroupLag, at_ms: int, now_ms: int) -> Change | None:
        name, rule = group.group, self._rule(group.group)
        reading = read(group.partitions, rule.counts)
        levels = self._levels.get(name, GroupLevels()).step(reading, rule.levels, now_ms)
        self._levels[name] = levels
        known = self._stored.get(name, StoredLevel(since_ms=at_ms))
        is_due = (
            rule.repeat_ms
            and known.is_notified
            and known.level is not Level.OK
            and now_ms - self._notified_ms.get(name, now_ms) >= rule.repeat_ms
        )
        if levels.level is known.level and not is_due:
            return None
        since_ms = known.since_ms if levels.level is known.level else at_ms
        stored = StoredLevel(
            level=levels.level,
            was=known.level,
            since_ms=since_ms,
            is_notified=False,
            reading=reading,
        )
        self._stored[name] = stored
        self._notified_ms[name] = now_ms
        notice = Notice.of(group, levels.level, known.level, reading, at_ms)
        return Change(stored, notice, rule.notify)

    def _rule(self, group: str) -> Rule:
        return self._config.rule_for(group) or _NO_RULE
