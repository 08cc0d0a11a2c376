"""A node with much to do does not starve one with little."""

from __future__ import annotations

from tests.dispatch.harness import Harness
from tests.waiting import WAIT_SECONDS, wait_until

LITTLE, MUCH = 20, 600


def test_a_node_with_few_jobs_gets_every_other_token(harness: Harness) -> None:
    order: list[str] = []

    def work(name: str) -> None:
        order.append(name)

    harness.node(work, partitions=2)
    wait_until(lambda: harness.idle() == 2)
    busy, quiet = harness.node(None), harness.node(None)
    many = busy.submit_all_sync(["busy"] * MUCH)
    wait_until(lambda: len(order) > 20)
    few = quiet.submit_all_sync(["quiet"] * LITTLE)
    for handle in few:
        handle.result(WAIT_SECONDS)
    first = order.index("quiet")
    last = len(order) - 1 - order[::-1].index("quiet")
    # By turns, but for what was in flight, and a turn that a busy machine lets pass.
    assert last - first < 4 * LITTLE
    assert any(not handle.done() for handle in many)
