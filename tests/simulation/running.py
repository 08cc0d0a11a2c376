"""Running seeds, and telling what went wrong in a way that can be read and run again."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Protocol

from tests.simulation.history import History
from tests.simulation.invariants import Invariant, violations
from tests.simulation.world import Stuck, World

# Enough to see what led to a violation; the whole story is one command away.
LINES_TOLD = 60
WORLDS_KEPT = 20


class Scenario(Protocol):
    """A world with everybody who lives in it."""

    world: World
    history: History

    def run(self) -> None:
        """Let the whole story happen."""
        ...


class Kind(Protocol):
    """A kind of world: made from a seed, judged by invariants."""

    NAME: str
    INVARIANTS: tuple[Invariant, ...]

    def __call__(self, seed: int) -> Scenario: ...


def judge(kind: Kind, seed: int) -> tuple[Scenario, list[str]]:
    """Run one seed; what is wrong with its history."""
    with silence():
        scenario = kind(seed)
        try:
            scenario.run()
        except Stuck as stuck:
            scenario.history.stuck.append(str(stuck))
        finally:
            scenario.world.end()
    return scenario, violations(scenario.history, kind.INVARIANTS)


def check(kind: Kind, seeds: Iterable[int]) -> None:
    """Run seeds; the first bad one fails, with its story's end and how to hear it again."""
    with collecting_seldom() as collect:
        for seed in seeds:
            scenario, found = judge(kind, seed)
            if found:
                raise AssertionError(
                    f"seed {seed} of {kind.NAME} violates:\n  "
                    + "\n  ".join(found[:5])
                    + f"\nthe end of its story (all of it: python -m tests.simulation {kind.NAME} "
                    + f"{seed}):\n{scenario.world.story(LINES_TOLD)}"
                )
            collect()


def first_bad(kind: Kind, seeds: Iterable[int], invariant: Invariant) -> int | None:
    """The first seed that violates an invariant."""
    for seed in seeds:
        if any(found.startswith(invariant.__name__) for found in judge(kind, seed)[1]):
            return seed
    return None


@contextmanager
def collecting_seldom() -> Iterator[Callable[[], None]]:
    """Collect garbage only now and then: a world is all garbage when it is over, and not before."""
    worlds = count(1)

    def collect() -> None:
        if next(worlds) % WORLDS_KEPT == 0:
            gc.collect()

    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield collect
    finally:
        gc.enable()
        gc.unfreeze()


@contextmanager
def silence() -> Iterator[None]:
    """Thousands of crashes have nothing to log that the trace does not tell better."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
