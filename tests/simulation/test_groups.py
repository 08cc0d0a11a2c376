"""Groups under crashes, bad networks and strange clients: nothing that is promised is broken."""

from __future__ import annotations

import pytest
from tests.simulation.groups import Groups
from tests.simulation.running import check

SEEDS = 1_000
SEEDS_LONG = 25_000
BLOCK = 100


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_no_invariant_of_groups_is_violated(first: int) -> None:
    check(Groups, range(first, first + BLOCK))


@pytest.mark.long
@pytest.mark.parametrize("first", range(SEEDS, SEEDS_LONG, BLOCK))
def test_no_invariant_of_groups_is_violated_in_many_worlds(first: int) -> None:
    check(Groups, range(first, first + BLOCK))
