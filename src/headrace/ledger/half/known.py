"""Half messages as the state topic shows them, for people and programs that look from outside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.ledger.half.bodies import Ended, Headers, Prepared
from headrace.ledger.half.machine import HalfMachine, state_of
from headrace.ledger.half.states import State
from headrace.ledger.looking import entries
from headrace.ledger.machine import NEVER_MS, Entry

DECIDED = (State.COMMITTED, State.ROLLED_BACK)


class KnownHalf(NamedTuple):
    """What is known of an id; a decided one has no payload any more."""

    id: str
    state: State
    # When it was prepared, or when its decision was carried out.
    at_ms: int
    checks: int
    # The next check, alarm or forgetting; None for what is done right now.
    due_ms: int | None
    target: str = ""
    group: str = ""
    refusal: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    delay: tuple[str, str] | None = None

    @property
    def is_decided(self) -> bool:
        """Whether its decision was carried out."""
        return self.state in DECIDED


def known_halves(settings: Mapping[str, Any], id: str | None = None) -> Iterator[KnownHalf]:
    """All half messages, or one; TimeoutError if the brokers fall silent."""
    return map(_known, entries(settings, HalfMachine(), id))


def _known(entry: Entry) -> KnownHalf:
    state = state_of(entry)
    due_ms = entry.due_ms if 0 < entry.due_ms < NEVER_MS else None
    known = KnownHalf(entry.id, state, entry.at_ms, entry.count, due_ms)
    if not entry.body:
        return known
    if state in DECIDED:
        ended = Ended.unpack(entry.body)
        return known._replace(target=ended.target, group=ended.group, refusal=ended.refusal)
    target, group, key, value, headers, delay = Prepared.unpack(entry.body)
    return known._replace(
        target=target, group=group, key=key, value=value, headers=headers, delay=delay
    )
