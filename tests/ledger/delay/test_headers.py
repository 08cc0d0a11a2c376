"""The headers of `headrace.delay`: what is a command, and what is wrong with the others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.client.delayed import AT_MS_MAX, delayed_headers, deliver_at_ms
from headrace.client.message import Message
from headrace.ledger.delay.machine import State, read_command
from headrace.ledger.machine import LedgerEntry
from headrace.ledger.records import unpack_message

NOW_MS = 1_700_000_000_000


def read(*headers: tuple[str, bytes | None], at_ms: int = NOW_MS) -> LedgerEntry:
    return read_command(Message("headrace.delay", 3, 7, b"k", b"v", headers, at_ms), NOW_MS)


TARGET = ("headrace-target", b"orders")
ID = ("headrace-id", b"a")


def test_a_delay_counts_from_the_append() -> None:
    command = read(TARGET, ID, ("headrace-delay", b"1m30s"), at_ms=NOW_MS - 5)
    assert command.due_ms == NOW_MS - 5 + 90_000
    assert (command.id, command.position, command.state) == ("a", (3, 7), State.SCHEDULED)


def test_key_value_and_other_headers_stay_as_they_are() -> None:
    other: list[tuple[str, bytes | None]] = [("x", b"1"), ("x", None), ("y", b"\xff")]
    command = read(*other, TARGET, ID, ("headrace-deliver-at", b"12"))
    assert command.due_ms == 12
    assert unpack_message(command.body) == ("orders", b"k", b"v", [*other, ID])


def test_without_an_id_the_position_is_the_id() -> None:
    assert read(TARGET, ("headrace-delay", b"5s")).id == "headrace.delay/3/7"


@pytest.mark.parametrize(
    "headers",
    [[("headrace-cancel", b"a")], [ID, ("headrace-cancel", b"")], [ID, ("headrace-cancel", None)]],
)
def test_a_cancel_needs_only_an_id(headers: list[tuple[str, bytes | None]]) -> None:
    command = read(*headers)
    assert command.state == State.CANCELLED
    assert command.id == "a"


def test_the_id_of_the_command_comes_before_the_id_that_an_outbox_adds() -> None:
    command = read(("headrace-id", b"row-17"), ("headrace-cancel", b"a"))
    assert (command.state, command.id) == (State.CANCELLED, "a")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([ID, ("headrace-delay", b"5s")], "headrace-target is missing"),
        ([("headrace-target", b""), ID, ("headrace-delay", b"5s")], "headrace-target is missing"),
        ([("headrace-target", b"a b"), ID, ("headrace-delay", b"5s")], "is not a valid topic name"),
        (
            [("headrace-target", b"x" * 250), ID, ("headrace-delay", b"5s")],
            "is not a valid topic name",
        ),
        (
            [("headrace-target", b"__consumer_offsets"), ID, ("headrace-delay", b"5s")],
            "is an internal topic",
        ),
        (
            [("headrace-target", b"headrace.delay.state"), ID, ("headrace-delay", b"5s")],
            "is an internal topic",
        ),
        ([TARGET, ID], "exactly one of"),
        ([TARGET, ID, ("headrace-delay", b"5s"), ("headrace-deliver-at", b"5")], "exactly one of"),
        ([TARGET, ID, ("headrace-delay", b"soon")], "not a duration"),
        ([TARGET, ID, ("headrace-delay", b"-5s")], "not a duration"),
        ([TARGET, ID, ("headrace-delay", None)], "not a duration"),
        ([TARGET, ID, ("headrace-delay", b"9" * 30 + b"d")], "after the year 9999"),
        ([TARGET, ID, ("headrace-deliver-at", b"tomorrow")], "not a time in milliseconds"),
        ([TARGET, ID, ("headrace-deliver-at", b"-1")], "not a time in milliseconds"),
        ([TARGET, ID, ("headrace-deliver-at", b"9" * 400)], "not a time in milliseconds"),
        ([TARGET, ID, ("headrace-deliver-at", b"%d" % (AT_MS_MAX + 1))], "after the year 9999"),
        ([TARGET, ("headrace-id", b""), ("headrace-delay", b"5s")], "an id has"),
        ([TARGET, ("headrace-id", b"\xff"), ("headrace-delay", b"5s")], "UTF-8"),
        ([TARGET, ("headrace-id", b"a\0"), ("headrace-delay", b"5s")], "zero bytes"),
        ([TARGET, ("headrace-id", b"a" * 1025), ("headrace-delay", b"5s")], "an id has"),
        ([("headrace-cancel", b"")], "a cancel needs the id"),
    ],
)
def test_a_bad_header_is_named(headers: list[tuple[str, bytes | None]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read(*headers)


def test_years_ahead_are_fine() -> None:
    assert read(TARGET, ID, ("headrace-delay", b"36500d")).due_ms > NOW_MS + 99 * 365 * 86_400_000


def test_the_api_makes_headers_that_the_service_reads() -> None:
    id, pairs = delayed_headers("orders", {"x": "1"}, timedelta(minutes=2), None)
    command = read(*((name, str(value).encode()) for name, value in pairs))
    assert command.id == id
    assert command.due_ms == NOW_MS + 120_000


@pytest.mark.parametrize(
    ("after", "at", "words"),
    [
        ("15m", 5, "not both"),
        ("later", None, "not a duration"),
        (-5, None, "in the past"),
        (None, datetime(2030, 1, 1), "no time zone"),
    ],
)
def test_the_api_refuses_nonsense(after: str | None, at: int | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        delayed_headers("orders", None, after, at)


def test_headers_that_the_api_sets_itself_are_refused() -> None:
    with pytest.raises(ValueError, match="set by after"):
        delayed_headers("orders", {"headrace-target": "x"}, "5s", None)


def test_a_time_with_its_zone_is_a_time() -> None:
    assert deliver_at_ms(0, None, datetime(2030, 1, 1, tzinfo=UTC)) == 1_893_456_000_000
    assert deliver_at_ms(5, "1s", None) == 1_005
    assert deliver_at_ms(5, None, None) is None
