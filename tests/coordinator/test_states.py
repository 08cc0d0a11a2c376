"""The table of transitions, enumerated: what is in it, and that groups obey it."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.coordinator.states import (
    COMMIT_ANSWERS,
    HEARTBEAT_ANSWERS,
    SOFT_EVENTS,
    STORED_EVENTS,
    TRANSITIONS,
    Event,
    State,
    moved,
)
from headrace.coordinator.transitions import IllegalTransition
from headrace.protocol.errors import ErrorCode

# Kafka's rule: the states from which a state may be entered. A stable group that stays stable (a
# static member came back) is no transition there.
KAFKA_PREVIOUS = {
    State.EMPTY: {State.PREPARING},
    State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
    State.COMPLETING: {State.PREPARING},
    State.STABLE: {State.COMPLETING},
    State.DEAD: {State.STABLE, State.PREPARING, State.COMPLETING, State.EMPTY},
}


def test_transitions_are_those_of_kafka() -> None:
    previous: dict[State, set[State]] = {state: set() for state in State}
    for (before, _), after in TRANSITIONS.items():
        if before is not after:
            previous[after].add(before)
    assert previous == KAFKA_PREVIOUS


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)), ids=str)
def test_every_pair_is_either_in_the_table_or_refused(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert moved(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition, match=event.name):
            moved(state, event)


def test_nothing_leaves_the_dead() -> None:
    assert not [event for (state, event) in TRANSITIONS if state is State.DEAD]


def test_every_event_is_either_soft_or_stored() -> None:
    assert set(Event) == SOFT_EVENTS | STORED_EVENTS
    assert not SOFT_EVENTS & STORED_EVENTS


def test_a_group_becomes_stable_empty_or_dead_through_the_log_only() -> None:
    for (state, event), after in TRANSITIONS.items():
        if after in (State.STABLE, State.EMPTY) and state is not after:
            assert event in STORED_EVENTS


def test_members_are_told_of_a_rebalance_while_the_group_prepares_it() -> None:
    assert set(HEARTBEAT_ANSWERS) == set(COMMIT_ANSWERS) == set(State)
    told = {s for s in State if HEARTBEAT_ANSWERS[s] is ErrorCode.REBALANCE_IN_PROGRESS}
    assert told == {State.PREPARING}
    refused = {s for s in State if COMMIT_ANSWERS[s] is ErrorCode.REBALANCE_IN_PROGRESS}
    assert refused == {State.COMPLETING}
