"""Values of open transactions against a plain reading of the whole log."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.pending_values import PendingValues

KEYS = ("a", "b")
PRODUCERS = (1, 2, 3)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.sampled_from(KEYS)),
        st.tuples(st.sampled_from(PRODUCERS), st.sampled_from(KEYS)),
        st.tuples(st.sampled_from(PRODUCERS), st.sampled_from((True, False))),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(steps)
def test_the_value_written_last_wins_whatever_ends_first(
    script: list[tuple[str | int, str | bool]],
) -> None:
    undecided: PendingValues[str, int] = PendingValues()
    values: dict[str, int] = {}
    # The model: every write that counts, with its place in the log.
    counted: dict[str, int] = {}
    open_writes: dict[int, dict[str, int]] = {}

    for place, (who, what) in enumerate(script):
        if who == "plain":
            assert isinstance(what, str)
            undecided.settle(what)
            values[what] = counted[what] = place
        elif isinstance(what, str):
            assert isinstance(who, int)
            undecided.put(who, what, place)
            open_writes.setdefault(who, {})[what] = place
        else:
            assert isinstance(who, int)
            values |= undecided.end(who, committed=what)
            for key, written in open_writes.pop(who, {}).items():
                if what:
                    counted[key] = max(counted.get(key, -1), written)
        assert values == counted
        # Held are exactly the open writes that could still count.
        could = {
            (producer, key, written)
            for producer, writes in open_writes.items()
            for key, written in writes.items()
            if written > counted.get(key, -1)
        }
        assert set(undecided.held()) == could
        assert bool(undecided) is bool(could)
        assert set(undecided) == {key for _, key, _ in could}
        assert [written for _, _, written in undecided.held()] == sorted(w for _, _, w in could)
