"""The rules of the lag service, from a TOML file: which groups, which limits, whom to notify."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.errors import HeadraceError
from headrace.lag.levels import LevelPolicy, Threshold
from headrace.timing.durations import duration_ms, is_duration

EVERY_MS = 10_000
EVERY_MS_MIN = 100
TIMEOUT_MS = 5_000
TRIES = 4
LOG = "log"

_FILE_KEYS = ("every", "rule", "notifier")
_RULE_KEYS = (
    "groups", "topics", "warning", "critical", "rise_after", "fall_after", "clear", "repeat",
    "notify",
)  # fmt: skip
_NOTIFIER_KEYS = ("webhook", "command", "timeout", "tries", "token_file")


class RulesError(HeadraceError, ValueError):
    """A file of rules that is not valid, with a hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The limits for groups whose names match; a rule without a threshold never alarms."""

    groups: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
    levels: LevelPolicy = field(default_factory=LevelPolicy)
    repeat_ms: int = 0
    """Notify again after this long at a level; 0 for never."""
    notify: tuple[str, ...] = (LOG,)

    def counts(self, topic: str) -> bool:
        """Whether a topic counts for this rule."""
        return matches(topic, self.topics)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifierSpec:
    """The settings of a notifier: a webhook or a command."""

    webhook: str | None = None
    command: tuple[str, ...] = ()
    timeout_ms: int = TIMEOUT_MS
    tries: int = TRIES
    token_file: Path | None = None


DEFAULT_RULE = Rule(
    levels=LevelPolicy(
        warning=Threshold(behind_ms=duration_ms("5m")),
        critical=Threshold(behind_ms=duration_ms("1h")),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagConfig:
    """The settings of the lag service; the default is one rule for all groups."""

    every_ms: int = EVERY_MS
    rules: tuple[Rule, ...] = (DEFAULT_RULE,)
    notifiers: Mapping[str, NotifierSpec] = field(default_factory=dict)

    def rule_for(self, group: str) -> Rule | None:
        """The first rule that matches the group."""
        return next((rule for rule in self.rules if matches(group, rule.groups)), None)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits a shell pattern: `*`, `?`, `[...]`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_config(path: Path) -> LagConfig:
    """Read a file of rules; RulesError if it is not valid."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as problem:
        raise RulesError(f"{path} cannot be read: {problem.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise RulesError(f"{path} is not TOML: {problem}") from None
    try:
        return parse_config(document, path.parent)
    except RulesError as problem:
        raise RulesError(f"{path}: {problem.message}", problem.hint) from None


def parse_config(document: Mapping[str, Any], folder: Path = Path()) -> LagConfig:
    """Rules from a TOML document; file names in it are relative to `folder`."""
    _refuse_unknown(document, _FILE_KEYS, "the file")
    notifiers = {
        name: _notifier(name, given, folder)
        for name, given in _table(document.get("notifier", {}), "notifier").items()
    }
    given_rules = document.get("rule", [])
    if not isinstance(given_rules, list):
        raise RulesError("rule is not a list", "begin each rule with [[rule]]")
    rules = tuple(
        _rule(f"rule {number}", given, notifiers) for number, given in enumerate(given_rules, 1)
    )
    return LagConfig(
        every_ms=_duration(document, "every", EVERY_MS, "the file", at_least_ms=EVERY_MS_MIN),
        rules=rules or (DEFAULT_RULE,),
        notifiers=notifiers,
    )


def _rule(where: str, given: Any, notifiers: Mapping[str, NotifierSpec]) -> Rule:
    row = _table(given, where)
    _refuse_unknown(row, _RULE_KEYS, where)
    notify = _names(row.get("notify", [LOG]), f"{where}: notify")
    for name in notify:
        if name not in (LOG, *notifiers):
            raise RulesError(
                f"{where} notifies {name!r}, which is unknown",
                f"use {', '.join((LOG, *notifiers))}, or define [notifier.{name}]",
            )
    warning = _threshold(row.get("warning", {}), f"{where}: warning")
    critical = _threshold(row.get("critical", {}), f"{where}: critical")
    for low, high in (
        (warning.records, critical.records),
        (warning.behind_ms, critical.behind_ms),
    ):
        if low is not None and high is not None and high < low:
            raise RulesError(f"{where}: the critical limit is below the warning limit")
    default = LevelPolicy()
    clear = row.get("clear", default.clear)
    if isinstance(clear, bool) or not isinstance(clear, int | float) or not 0 < clear <= 1:
        raise RulesError(
            f"{where}: clear {clear!r} is not above 0 and up to 1", "0.5 is half of the threshold"
        )
    return Rule(
        groups=_names(row.get("groups", ["*"]), f"{where}: groups"),
        topics=_names(row.get("topics", ["*"]), f"{where}: topics"),
        levels=LevelPolicy(
            warning=warning,
            critical=critical,
            rise_after_ms=_duration(row, "rise_after", default.rise_after_ms, where),
            fall_after_ms=_duration(row, "fall_after", default.fall_after_ms, where),
            clear=float(clear),
        ),
        repeat_ms=_duration(row, "repeat", 0, where),
        notify=notify,
    )


def _threshold(given: Any, where: str) -> Threshold:
    row = _table(given, where)
    _refuse_unknown(row, ("records", "behind"), where)
    records = row.get("records")
    if records is not None and (
        isinstance(records, bool) or not isinstance(records, int) or records < 1
    ):
        raise RulesError(f"{where}: records {records!r} is not a count")
    return Threshold(
        records, _duration(row, "behind", 0, where, at_least_ms=1) if "behind" in row else None
    )


def _notifier(name: str, given: Any, folder: Path) -> NotifierSpec:
    where = f"notifier {name}"
    row = _table(given, where)
    _refuse_unknown(row, _NOTIFIER_KEYS, where)
    webhook, command = row.get("webhook"), row.get("command")
    if (webhook is None) == (command is None):
        raise RulesError(f"{where} needs either webhook or command")
    if name == LOG:
        raise RulesError(f"{where}: the name {LOG} is reserved")
    if webhook is not None and (
        not isinstance(webhook, str) or urlsplit(webhook).scheme not in ("http", "https")
    ):
        raise RulesError(f"{where}: webhook {webhook!r} is not a URL", "use https://HOST/PATH")
    tries = row.get("tries", TRIES)
    if isinstance(tries, bool) or not isinstance(tries, int) or tries < 1:
        raise RulesError(f"{where}: tries {tries!r} is not a count")
    token_file = row.get("token_file")
    return NotifierSpec(
        webhook=webhook,
        command=() if command is None else _command(command, where),
        timeout_ms=_duration(row, "timeout", TIMEOUT_MS, where, at_least_ms=1),
        tries=tries,
        token_file=None if token_file is None else folder / str(token_file),
    )


def _command(given: Any, where: str) -> tuple[str, ...]:
    if not isinstance(given, list) or not given or not all(isinstance(it, str) for it in given):
        raise RulesError(
            f"{where}: a command is a list of words, since it runs without a shell",
            'command = ["/usr/local/bin/page", "--team", "shop"]',
        )
    return tuple(given)


def _names(given: Any, where: str) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise RulesError(f"{where} is not a list of names")
    return tuple(names)


def _duration(
    row: Mapping[str, Any], name: str, default_ms: int, where: str, *, at_least_ms: int = 0
) -> int:
    if name not in row:
        return default_ms
    given = row[name]
    if not isinstance(given, str) or not is_duration(given):
        raise RulesError(
            f"{where}: {name} {given!r} is not a duration", 'write "30s", "15m" or "1h30m"'
        )
    found = duration_ms(given)
    if found < at_least_ms:
        raise RulesError(f"{where}: {name} {given!r} is below {at_least_ms}ms")
    return found


def _table(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise RulesError(f"{where} is not a table")
    return given


def _refuse_unknown(given: Iterable[str], known: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"use {', '.join(known)}"
            raise RulesError(f"{where} has an unknown setting {name!r}", hint)
