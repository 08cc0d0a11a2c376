"""The watch: the levels of all groups, look after look, and what is to be said of them; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.lag.levels import Gates, Level, Reading, read
from headrace.lag.notices import Notice
from headrace.lag.places import GroupLag
from headrace.lag.rules import LagConfig, Rule

# Of groups that no rule is for (any more), and that may still have a level to come down from.
_NOBODY = Rule(notify=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is remembered of a group, here and in the topic of levels."""

    level: Level = Level.OK
    was: Level = Level.OK
    since_ms: int = 0
    """When it came to its level, in wall time."""
    is_told: bool = True
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True, slots=True)
class Change:
    """Something to be written down, then told."""

    watched: Watched
    notice: Notice
    notify: tuple[str, ...]


class Watch:
    """Takes looks and says what has changed; levels it was told of at the start are kept."""

    def __init__(self, config: LagConfig, known: Mapping[str, Watched], now_ms: int) -> None:
        self._config = config
        self._watched = dict(known)
        self._gates = {name: Gates.at(watched.level) for name, watched in known.items()}
        # In monotonic time; those before this one have told when they had to.
        self._told_ms = dict.fromkeys(known, now_ms)

    @property
    def levels(self) -> dict[str, Watched]:
        """Groups that are not well, or of which somebody is still to be told."""
        return dict(self._watched)

    def look(
        self, groups: Iterable[GroupLag], at_ms: int, now_ms: int, silent: Collection[str] = ()
    ) -> list[Change]:
        """What a look at a wall time and a monotonic time changes, group by group.

        A group that is not there any more is one without lag; of a `silent` one nobody can say.
        """
        seen = {group.group: group for group in groups}
        changes = []
        for name in sorted({*seen, *self._watched}):
            if name not in seen and name in silent:
                continue
            group = seen.get(name) or GroupLag(group=name, state="Dead")
            change = self._step(group, at_ms, now_ms)
            if change is not None:
                changes.append(change)
        self._gates = {name: gates for name, gates in self._gates.items() if gates != Gates()}
        return changes

    def untold(self, at_ms: int) -> list[Change]:
        """What a predecessor has written down and may not have told."""
        return [
            Change(
                watched,
                Notice(
                    group=name,
                    level=watched.level,
                    was=watched.was,
                    reading=watched.reading,
                    at_ms=at_ms,
                ),
                self._rule(name).notify,
            )
            for name, watched in sorted(self._watched.items())
            if not watched.is_told
        ]

    def told(self, notice: Notice) -> Watched | None:
        """Note that a notice was told; the new state to write down, None if it is old news."""
        watched = self._watched.get(notice.group)
        if watched is None or watched.is_told or watched.level is not notice.level:
            return None
        watched = replace(watched, is_told=True)
        if watched.level is Level.OK:
            del self._watched[notice.group]
        else:
            self._watched[notice.group] = watched
        return watched

    def _step(self, group: GroupLag, at_ms: int, now_ms: int) -> Change | None:
        name, rule = group.group, self._rule(group.group)
        reading = read(group.partitions, rule.counts)
        gates = self._gates.get(name, Gates()).step(reading, rule.ladder, now_ms)
        self._gates[name] = gates
        known = self._watched.get(name, Watched(since_ms=at_ms))
        is_due = (
            rule.repeat_ms
            and known.is_told
            and known.level is not Level.OK
            and now_ms - self._told_ms.get(name, now_ms) >= rule.repeat_ms
        )
        if gates.level is known.level and not is_due:
            return None
        since_ms = known.since_ms if gates.level is known.level else at_ms
        watched = Watched(
            level=gates.level, was=known.level, since_ms=since_ms, is_told=False, reading=reading
        )
        self._watched[name] = watched
        self._told_ms[name] = now_ms
        notice = Notice.of(group, gates.level, known.level, reading, at_ms)
        return Change(watched, notice, rule.notify)

    def _rule(self, group: str) -> Rule:
        return self._config.rule_for(group) or _NOBODY
