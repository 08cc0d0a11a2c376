"""The checker finds each anomaly in a hand-made history, and nothing in a good one."""

from __future__ import annotations

import pytest
from tests.faults.checker import check, load

GOOD = """
{"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"]]}
{"process": 1, "kind": "send", "key": "t-0", "values": [[2, "c"]]}
{"process": 1, "kind": "maybe", "key": "t-0", "values": [[null, "d"]]}
{"process": 1, "kind": "maybe", "key": "t-0", "values": [[null, "never"]]}
{"process": 2, "kind": "poll", "key": "t-0", "values": [[0, "a"], [1, "b"]]}
{"process": 2, "kind": "poll", "key": "t-0", "values": [[2, "c"], [4, "d"]]}
{"process": 2, "kind": "seek", "key": "t-0"}
{"process": 2, "kind": "poll", "key": "t-0", "values": [[1, "b"]]}
{"process": 3, "kind": "subscribe"}
{"process": 3, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
{"process": 3, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
{"process": 3, "kind": "poll", "key": "t-0", "values": [[4, "d"]]}
{"process": 4, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"], [4, "d"]]}
{"process": 0, "kind": "send", "key": "t-1", "values": [[0, "a"]]}
{"process": 4, "kind": "final", "key": "t-1", "values": [[0, "a"]]}
"""

BAD = {
    "two values told for one offset": (
        "inconsistent-offsets",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"]]}
        {"process": 1, "kind": "send", "key": "t-0", "values": [[0, "b"]]}
        """,
    ),
    "two readers see two values at one offset": (
        "inconsistent-offsets",
        """
        {"process": 0, "kind": "poll", "key": "t-0", "values": [[7, "a"]]}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[7, "b"]]}
        """,
    ),
    "acknowledged, others read beyond it, nobody read it": (
        "lost-write",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 1, "kind": "seek", "key": "t-0"}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[2, "c"]]}
        {"process": 1, "kind": "seek", "key": "t-0"}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
        """,
    ),
    "acknowledged at the end and gone for a fresh reader": (
        "unseen",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"]]}
        {"process": 1, "kind": "final", "key": "t-0", "values": [[0, "a"]]}
        """,
    ),
    "read once and then gone for a fresh reader": (
        "unseen",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"]]}
        {"process": 2, "kind": "poll", "key": "t-0", "values": [[0, "a"], [1, "b"]]}
        {"process": 1, "kind": "final", "key": "t-0", "values": [[0, "a"]]}
        """,
    ),
    "everything gone": (
        "unseen",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"]]}
        {"process": 1, "kind": "final", "key": "t-0", "values": []}
        """,
    ),
    "a retried value in the log twice": (
        "duplicate",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[1, "a"]]}
        {"process": 1, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "a"]]}
        """,
    ),
    "a skip inside one poll": (
        "poll-skip",
        """
        {"process": 9, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"], [2, "c"]]}
        """,
    ),
    "a skip from one poll to the next": (
        "poll-skip",
        """
        {"process": 9, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[2, "c"]]}
        """,
    ),
    "a skip inside one poll of a group member": (
        "poll-skip",
        """
        {"process": 9, "kind": "final", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "a"], [1, "b"], [2, "c"]]}
        {"process": 1, "kind": "subscribe"}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"], [2, "c"]]}
        """,
    ),
    "backwards inside one poll": (
        "nonmonotonic-poll",
        """
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[1, "b"], [0, "a"]]}
        """,
    ),
    "the same record in two polls": (
        "nonmonotonic-poll",
        """
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
        {"process": 1, "kind": "poll", "key": "t-0", "values": [[0, "a"]]}
        """,
    ),
    "one producer's sends out of order": (
        "nonmonotonic-send",
        """
        {"process": 0, "kind": "send", "key": "t-0", "values": [[1, "a"]]}
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "b"]]}
        """,
    ),
    "out of order, as a reader found out": (
        "nonmonotonic-send",
        """
        {"process": 0, "kind": "maybe", "key": "t-0", "values": [[null, "a"]]}
        {"process": 0, "kind": "send", "key": "t-0", "values": [[0, "b"]]}
        {"process": 1, "kind": "final", "key": "t-0", "values": [[0, "b"], [1, "a"]]}
        """,
    ),
}


def test_a_good_history_has_no_anomaly() -> None:
    assert check(load(GOOD.splitlines())) == []


@pytest.mark.parametrize("title", BAD)
def test_each_anomaly_is_found_and_no_other(title: str) -> None:
    name, lines = BAD[title]
    found = check(load(lines.splitlines()))
    assert {anomaly.name for anomaly in found} == {name}, found


def test_an_anomaly_names_its_partition() -> None:
    lines = BAD["everything gone"][1].replace("t-0", "orders-7")
    (anomaly,) = check(load(lines.splitlines()))
    assert str(anomaly) == "unseen in orders-7: 'a' was acknowledged at offset 0"


def test_a_history_survives_json_lines() -> None:
    history = load(GOOD.splitlines())
    assert load(operation.to_json() for operation in history) == history
