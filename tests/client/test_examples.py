"""The examples of producers and consumers, and the blocks of their pages, run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing import BrokerThread

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 60
# What the pages call the cluster.
ADDRESS = "127.0.0.1:9092"

PAGES = ("producers.md", "consumers.md", "queue.md", "publish-subscribe.md")
PRINTED = {
    "producer_ways.py": [
        "waited for: offset 1",
        "called back: offset 2",
        "awaited: offsets [3, 4, 5]",
    ],
    "producer_interceptors.py": ["written", "{'amount': 12} [('trace', b't-1')]"],
    "producer_partitioners.py": [
        "key: True",
        "round robin: [0, 1, 2, 3]",
        "sticky: 1 partition until a batch is full",
        "function: [3, 3, 3, 3]",
    ],
    "producer_transaction.py": ["{('raw', 0): 3}"],
    "producer_switch.py": [
        "on: offset 0",
        "off: sending to orders is switched off (hint: headrace producer on orders switches it on)",
    ],
    "consumer_group.py": [
        "given [('parcels', 0, 0)]",
        "parcel 0",
        "parcel 1",
        "parcel 2",
        "taken 1",
    ],
    "consumer_commits.py": ["{('payments', 0): 1}", "[None] {('payments', 0): 0}"],
    "consumer_alone.py": [
        "['r0', 'r1', 'r2', 'r3', 'r4']",
        "['r3', 'r4']",
        "['r0']",
        "paused: []",
    ],
    "consumer_wrong_group.py": [
        "group 'biling' has never committed on topic 'orders-of-years', which holds 20 records: "
        'is the group\'s name right? (hint: if it is, give it a start: start="earliest", '
        'start="latest", start="2h" (two hours ago) or start="2026-01-31T08:00Z")',
        "read 20",
    ],
}


@pytest.mark.headrace({"num.partitions": 1})
def test_every_example_prints_what_it_should(broker: BrokerThread) -> None:
    for name, expected in PRINTED.items():
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / name, broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{name}\n{done.stderr}"
        assert done.stdout.splitlines() == expected, name


def test_every_example_is_here() -> None:
    found = {
        path.name
        for kind in ("producer", "consumer")
        for path in (ROOT / "examples").glob(f"{kind}_*.py")
    }
    assert found == set(PRINTED)


def blocks(page: str) -> list[tuple[str, str | None]]:
    """Python blocks in order, each with the output that a text block says follows it."""
    found = re.findall(r"```python\n(.*?)```\n(?:\n?```text\n(.*?)```)?", page, re.DOTALL)
    return [(program, output or None) for program, output in found]


@pytest.mark.headrace({"num.partitions": 1})
@pytest.mark.parametrize(
    "name", ["producers.md", "consumers.md", "queue.md", "publish-subscribe.md"]
)
def test_every_block_of_the_page_runs(broker: BrokerThread, name: str) -> None:
    page = (ROOT / "docs" / name).read_text().replace(ADDRESS, broker.bootstrap)
    # Later blocks go on where earlier ones were, as a reader does.
    names: dict[str, object] = {"__name__": "page"}
    found = blocks(page)
    assert found
    for program, expected in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, name, "exec"), names)
        if expected is not None:
            assert printed.getvalue() == expected, program
