"""The states of a half message, as one table that the machine obeys and the docs draw."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """The state of an id."""

    UNKNOWN = "unknown"
    # Decided, but not prepared yet: the two commands may travel on different partitions.
    EARLY_COMMIT = "early commit"
    EARLY_ROLLBACK = "early rollback"
    WAITING = "waiting"
    PARKED = "parked"
    # The decision is known but not carried out; then it is remembered, for repeats and
    # contradictions.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"


class Event(StrEnum):
    """What may happen to an id."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    # The time of the next action has come; EXHAUSTED if it is a check and none is left.
    DUE = "due"
    EXHAUSTED = "exhausted"


class Effect(StrEnum):
    """What the service does about it."""

    HOLD = "hold"
    REMEMBER = "remember"
    DECIDE = "decide"
    ASK = "ask"
    PARK = "park, alarm"
    REMIND = "alarm again"
    DELIVER = "deliver"
    DROP = "drop"
    IGNORE = "ignore"
    CONTRADICT = "ignore, alarm"
    FORGET = "forget"
    MISS = "forget, alarm"


_S, _E, _F = State, Event, Effect

# The first decision wins: no transition leads from one decision to the other.
TABLE: dict[tuple[State, Event], tuple[State, Effect]] = {
    (_S.UNKNOWN, _E.PREPARE): (_S.WAITING, _F.HOLD),
    (_S.UNKNOWN, _E.COMMIT): (_S.EARLY_COMMIT, _F.REMEMBER),
    (_S.UNKNOWN, _E.ROLLBACK): (_S.EARLY_ROLLBACK, _F.REMEMBER),
    (_S.EARLY_COMMIT, _E.PREPARE): (_S.COMMITTING, _F.DECIDE),
    (_S.EARLY_COMMIT, _E.COMMIT): (_S.EARLY_COMMIT, _F.IGNORE),
    (_S.EARLY_COMMIT, _E.ROLLBACK): (_S.EARLY_COMMIT, _F.CONTRADICT),
    (_S.EARLY_COMMIT, _E.DUE): (_S.UNKNOWN, _F.MISS),
    (_S.EARLY_ROLLBACK, _E.PREPARE): (_S.ROLLING_BACK, _F.DECIDE),
    (_S.EARLY_ROLLBACK, _E.COMMIT): (_S.EARLY_ROLLBACK, _F.CONTRADICT),
    (_S.EARLY_ROLLBACK, _E.ROLLBACK): (_S.EARLY_ROLLBACK, _F.IGNORE),
    (_S.EARLY_ROLLBACK, _E.DUE): (_S.UNKNOWN, _F.FORGET),
    (_S.WAITING, _E.PREPARE): (_S.WAITING, _F.IGNORE),
    (_S.WAITING, _E.COMMIT): (_S.COMMITTING, _F.DECIDE),
    (_S.WAITING, _E.ROLLBACK): (_S.ROLLING_BACK, _F.DECIDE),
    (_S.WAITING, _E.DUE): (_S.WAITING, _F.ASK),
    (_S.WAITING, _E.EXHAUSTED): (_S.PARKED, _F.PARK),
    (_S.PARKED, _E.PREPARE): (_S.PARKED, _F.IGNORE),
    (_S.PARKED, _E.DUE): (_S.PARKED, _F.REMIND),
    (_S.PARKED, _E.COMMIT): (_S.COMMITTING, _F.DECIDE),
    (_S.PARKED, _E.ROLLBACK): (_S.ROLLING_BACK, _F.DECIDE),
    (_S.COMMITTING, _E.PREPARE): (_S.COMMITTING, _F.IGNORE),
    (_S.COMMITTING, _E.COMMIT): (_S.COMMITTING, _F.IGNORE),
    (_S.COMMITTING, _E.ROLLBACK): (_S.COMMITTING, _F.CONTRADICT),
    (_S.COMMITTING, _E.DUE): (_S.COMMITTED, _F.DELIVER),
    (_S.ROLLING_BACK, _E.PREPARE): (_S.ROLLING_BACK, _F.IGNORE),
    (_S.ROLLING_BACK, _E.COMMIT): (_S.ROLLING_BACK, _F.CONTRADICT),
    (_S.ROLLING_BACK, _E.ROLLBACK): (_S.ROLLING_BACK, _F.IGNORE),
    (_S.ROLLING_BACK, _E.DUE): (_S.ROLLED_BACK, _F.DROP),
    (_S.COMMITTED, _E.PREPARE): (_S.COMMITTED, _F.IGNORE),
    (_S.COMMITTED, _E.COMMIT): (_S.COMMITTED, _F.IGNORE),
    (_S.COMMITTED, _E.ROLLBACK): (_S.COMMITTED, _F.CONTRADICT),
    (_S.COMMITTED, _E.DUE): (_S.UNKNOWN, _F.FORGET),
    (_S.ROLLED_BACK, _E.PREPARE): (_S.ROLLED_BACK, _F.IGNORE),
    (_S.ROLLED_BACK, _E.COMMIT): (_S.ROLLED_BACK, _F.CONTRADICT),
    (_S.ROLLED_BACK, _E.ROLLBACK): (_S.ROLLED_BACK, _F.IGNORE),
    (_S.ROLLED_BACK, _E.DUE): (_S.UNKNOWN, _F.FORGET),
}
