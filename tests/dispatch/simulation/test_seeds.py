"""Five thousand seeds of nodes, rebalances, crashes, store losses and late messages.

In every one: never two valid fences at once on a partition, no fence is used twice, nothing is
committed before its outcome is written, every job finishes, every token is back within the bound,
and no node waits while another one is served twice. Without frozen processes and long outages of
the store, no two jobs of a partition ever run at the same time, valid or not.
"""

from __future__ import annotations

import pytest
from tests.dispatch.simulation.stage import play

SEEDS = 5_000
PARTS = 5


@pytest.mark.parametrize("part", range(PARTS))
def test_every_seed_ends_well(part: int) -> None:
    for seed in range(part, SEEDS, PARTS):
        play(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_seeds_end_well() -> None:
    for seed in range(SEEDS, 100_000):
        play(seed)
