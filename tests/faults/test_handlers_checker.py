"""The checker finds each anomaly of handlers in a hand-made history, and nothing in a good one."""

from __future__ import annotations

import pytest
from tests.faults.handlers_checker import Event, check_handlers, load_events

SENT = """
{"kind": "sent", "handler": "bill", "id": "a", "key": "k", "n": 1, "tries": 2}
{"kind": "sent", "handler": "bill", "id": "b", "key": "k", "n": 2, "tries": 2}
"""

GOOD = (
    SENT
    + """
{"kind": "sent", "handler": "bill", "id": "poison", "key": "k", "n": 3, "tries": 2}
{"kind": "sent", "handler": "bill", "id": "junk", "key": "k", "n": 4, "tries": 0}
{"kind": "sent", "handler": "bill", "id": "waits", "key": "l", "n": 1, "tries": 2}
{"kind": "sent", "handler": "book", "id": "a", "key": "k", "n": 1, "tries": 2}
{"kind": "failed", "handler": "bill", "id": "a"}
{"kind": "failed", "handler": "bill", "id": "a"}
{"kind": "failed", "handler": "bill", "id": "a"}
{"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
{"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
{"kind": "failed", "handler": "bill", "id": "poison"}
{"kind": "failed", "handler": "bill", "id": "poison"}
{"kind": "failed", "handler": "bill", "id": "waits"}
{"kind": "effect", "handler": "book", "id": "a", "key": "k", "n": 1}
{"kind": "parked", "handler": "bill", "id": "waits"}
{"kind": "indexed", "handler": "bill", "id": "poison"}
{"kind": "dead", "handler": "bill", "id": "poison"}
{"kind": "dead", "handler": "bill", "id": "poison"}
{"kind": "sent", "handler": "book", "id": "copied", "key": "m", "n": 1, "tries": 1}
{"kind": "sent", "handler": "book", "id": "copied", "key": "m", "n": 1, "tries": 1}
{"kind": "failed", "handler": "book", "id": "copied"}
{"kind": "indexed", "handler": "book", "id": "copied"}
{"kind": "dead", "handler": "book", "id": "copied"}
{"kind": "sent", "handler": "book", "id": "behind", "key": "m", "n": 2, "tries": 1}
{"kind": "effect", "handler": "book", "id": "behind", "key": "m", "n": 2}
{"kind": "effect", "handler": "book", "id": "copied", "key": "m", "n": 1}
{"kind": "indexed", "handler": "bill", "id": "junk"}
{"kind": "dead", "handler": "bill", "id": "junk"}
"""
)

BAD = {
    "an effect happens twice": (
        "dup-effect",
        """
        {"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
        {"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "a failed message is nowhere": (
        "lost-retry",
        """
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "a message was never looked at": (
        "unhandled",
        """
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "given up, and not in the topic": (
        "dlq-loss",
        """
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "indexed", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "in the topic, and nobody can list it": (
        "dlq-loss",
        """
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "dead", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "given up with tries left": (
        "dlq-early",
        """
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "indexed", "handler": "bill", "id": "a"}
        {"kind": "dead", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "given up although it was done": (
        "dlq-early",
        """
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "failed", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
        {"kind": "indexed", "handler": "bill", "id": "a"}
        {"kind": "dead", "handler": "bill", "id": "a"}
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        """,
    ),
    "the second of a key before the first": (
        "lane-reorder",
        """
        {"kind": "effect", "handler": "bill", "id": "b", "key": "k", "n": 2}
        {"kind": "effect", "handler": "bill", "id": "a", "key": "k", "n": 1}
        """,
    ),
}


def test_a_good_history_has_no_anomaly() -> None:
    assert check_handlers(load_events(GOOD.splitlines())) == []


@pytest.mark.parametrize("title", BAD)
def test_each_anomaly_is_found_and_no_other(title: str) -> None:
    name, lines = BAD[title]
    found = check_handlers(load_events((SENT + lines).splitlines()))
    assert {anomaly.name for anomaly in found} == {name}, found


def test_one_handler_s_effects_say_nothing_of_another_s() -> None:
    history = load_events(SENT.splitlines())
    history += [Event("effect", "book", id, "k", n) for id, n in (("a", 1), ("b", 2))]
    assert {anomaly.name for anomaly in check_handlers(history)} == {"unhandled"}


def test_an_anomaly_names_its_handler_and_message() -> None:
    history = load_events((SENT + BAD["a failed message is nowhere"][1]).splitlines())
    (anomaly,) = check_handlers(history)
    assert str(anomaly) == "lost-retry at bill: a failed 1 times and is nowhere"


def test_a_history_survives_json_lines() -> None:
    history = load_events(GOOD.splitlines())
    assert load_events(event.to_json() for event in history) == history
