"""The table of transitions, enumerated: what is in it, and that transactions obey it."""

from __future__ import annotations

from itertools import product

import pytest

from headrace.coordinator.transactions.states import (
    IDLE,
    OPEN,
    SETTLING,
    TRANSITIONS,
    Event,
    State,
    moved,
)
from headrace.coordinator.transitions import IllegalTransition

# Kafka's rule: the states from which a state may be entered. It also lets a fenced transaction
# pass through PrepareEpochFence in memory, which is one step here.
KAFKA_PREVIOUS = {
    State.EMPTY: {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.ONGOING: {State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: {
        State.ONGOING,
        State.EMPTY,
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    },
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
    State.DEAD: {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.PREPARE_EPOCH_FENCE: set(),
}


def test_transitions_are_those_of_kafka() -> None:
    previous: dict[State, set[State]] = {state: set() for state in State}
    for (before, _), after in TRANSITIONS.items():
        previous[after].add(before)
    assert previous == KAFKA_PREVIOUS


def test_states_have_the_names_and_numbers_of_kafka() -> None:
    assert {state.id: state.value for state in State} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_what_is_not_in_the_table_does_not_happen(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert moved(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(IllegalTransition):
            moved(state, event)


def test_a_decision_is_final() -> None:
    for state in SETTLING:
        assert [event for before, event in TRANSITIONS if before is state] == [Event.SETTLE]


def test_every_stored_state_is_either_open_or_idle() -> None:
    assert set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE} == OPEN | IDLE
    assert not OPEN & IDLE
