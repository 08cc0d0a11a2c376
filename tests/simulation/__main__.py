"""Tell the story of a seed: `python -m tests.simulation groups 17`, from the project's root.

Everything in a story follows from its seed, in any process: a failing test names the seed, and this
prints all that happened. The parts, from below:

- `world`: virtual time, chance, and processes, which are event loops that can be killed or frozen;
- `network`: connections as TCP gives them; `machine`: the disk, the clock and the real broker;
- `faults`: crashes, power losses, cut lines, frozen processes, slow disks, clocks that are set;
- `clients`, and on top of it `members` of groups, transactional `producers`, `processors` that do
  both, and `readers` of committed records; all note what they asked and heard in a `history`;
- `invariants`: what must hold of a history, one function each;
- `groups` and `transactions`: the two kinds of worlds; `running`: seeds in, verdicts out.
"""

from __future__ import annotations

import sys

from tests.simulation.groups import Groups
from tests.simulation.running import Kind, judge
from tests.simulation.transactions import Transactions

KINDS: dict[str, Kind] = {kind.NAME: kind for kind in (Groups, Transactions)}


def main(arguments: list[str]) -> int:
    """Print the whole trace, then what is wrong with it."""
    if len(arguments) != 2 or arguments[0] not in KINDS or not arguments[1].isdigit():
        print(f"usage: python -m tests.simulation {'|'.join(KINDS)} SEED", file=sys.stderr)
        return 2
    scenario, found = judge(KINDS[arguments[0]], int(arguments[1]))
    print(scenario.world.story())
    print(f"{len(found)} violations", *found, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
