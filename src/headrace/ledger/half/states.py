"""The states of a half message as one table: code obeys it, tests enumerate it, docs draw it."""

from __future__ import annotations

from enum import StrEnum

from headrace.ledger.machine import Transition


class State(StrEnum):
    """What is known of an id."""

    UNKNOWN = "unknown"
    # A decision whose prepare has not come yet: the two may travel on different partitions.
    EARLY_COMMIT = "early commit"
    EARLY_ROLLBACK = "early rollback"
    WAITING = "waiting"
    PARKED = "parked"
    # Decided, but not yet done; done, and remembered for repeats and contradictions.
    COMMITTING = "committing"
    COMMITTED = "committed"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"


class Event(StrEnum):
    """What may happen to it."""

    PREPARE = "prepare"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    # The time has come: for a check while one is left, for giving up, for the decision's effect.
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

# The first decision wins: no way leads from one decision to the other.
TABLE: tuple[Transition, ...] = (
    Transition(_S.UNKNOWN, _E.PREPARE, _S.WAITING, _F.HOLD),
    Transition(_S.UNKNOWN, _E.COMMIT, _S.EARLY_COMMIT, _F.REMEMBER),
    Transition(_S.UNKNOWN, _E.ROLLBACK, _S.EARLY_ROLLBACK, _F.REMEMBER),
    Transition(_S.EARLY_COMMIT, _E.PREPARE, _S.COMMITTING, _F.DECIDE),
    Transition(_S.EARLY_COMMIT, _E.COMMIT, _S.EARLY_COMMIT, _F.IGNORE),
    Transition(_S.EARLY_COMMIT, _E.ROLLBACK, _S.EARLY_COMMIT, _F.CONTRADICT),
    Transition(_S.EARLY_COMMIT, _E.DUE, _S.UNKNOWN, _F.MISS),
    Transition(_S.EARLY_ROLLBACK, _E.PREPARE, _S.ROLLING_BACK, _F.DECIDE),
    Transition(_S.EARLY_ROLLBACK, _E.COMMIT, _S.EARLY_ROLLBACK, _F.CONTRADICT),
    Transition(_S.EARLY_ROLLBACK, _E.ROLLBACK, _S.EARLY_ROLLBACK, _F.IGNORE),
    Transition(_S.EARLY_ROLLBACK, _E.DUE, _S.UNKNOWN, _F.FORGET),
    Transition(_S.WAITING, _E.PREPARE, _S.WAITING, _F.IGNORE),
    Transition(_S.WAITING, _E.COMMIT, _S.COMMITTING, _F.DECIDE),
    Transition(_S.WAITING, _E.ROLLBACK, _S.ROLLING_BACK, _F.DECIDE),
    Transition(_S.WAITING, _E.DUE, _S.WAITING, _F.ASK),
    Transition(_S.WAITING, _E.EXHAUSTED, _S.PARKED, _F.PARK),
    Transition(_S.PARKED, _E.PREPARE, _S.PARKED, _F.IGNORE),
    Transition(_S.PARKED, _E.DUE, _S.PARKED, _F.REMIND),
    Transition(_S.PARKED, _E.COMMIT, _S.COMMITTING, _F.DECIDE),
    Transition(_S.PARKED, _E.ROLLBACK, _S.ROLLING_BACK, _F.DECIDE),
    Transition(_S.COMMITTING, _E.PREPARE, _S.COMMITTING, _F.IGNORE),
    Transition(_S.COMMITTING, _E.COMMIT, _S.COMMITTING, _F.IGNORE),
    Transition(_S.COMMITTING, _E.ROLLBACK, _S.COMMITTING, _F.CONTRADICT),
    Transition(_S.COMMITTING, _E.DUE, _S.COMMITTED, _F.DELIVER),
    Transition(_S.ROLLING_BACK, _E.PREPARE, _S.ROLLING_BACK, _F.IGNORE),
    Transition(_S.ROLLING_BACK, _E.COMMIT, _S.ROLLING_BACK, _F.CONTRADICT),
    Transition(_S.ROLLING_BACK, _E.ROLLBACK, _S.ROLLING_BACK, _F.IGNORE),
    Transition(_S.ROLLING_BACK, _E.DUE, _S.ROLLED_BACK, _F.DROP),
    Transition(_S.COMMITTED, _E.PREPARE, _S.COMMITTED, _F.IGNORE),
    Transition(_S.COMMITTED, _E.COMMIT, _S.COMMITTED, _F.IGNORE),
    Transition(_S.COMMITTED, _E.ROLLBACK, _S.COMMITTED, _F.CONTRADICT),
    Transition(_S.COMMITTED, _E.DUE, _S.UNKNOWN, _F.FORGET),
    Transition(_S.ROLLED_BACK, _E.PREPARE, _S.ROLLED_BACK, _F.IGNORE),
    Transition(_S.ROLLED_BACK, _E.COMMIT, _S.ROLLED_BACK, _F.CONTRADICT),
    Transition(_S.ROLLED_BACK, _E.ROLLBACK, _S.ROLLED_BACK, _F.IGNORE),
    Transition(_S.ROLLED_BACK, _E.DUE, _S.UNKNOWN, _F.FORGET),
)
MOVES: dict[tuple[str, str], tuple[State, Effect]] = {
    (move.state, move.event): (State(move.next), Effect(move.effect)) for move in TABLE
}
