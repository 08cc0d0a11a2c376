"""The headers of `headrace.delay`: what any client writes to have a message delayed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.delayed import AT_HEADER, CANCEL_HEADER, DELAY_HEADER, TARGET_HEADER
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.machine import Place
from headrace.ledger.packing import pack_message
from headrace.ledger.records import read_id
from headrace.timing.durations import duration_ms

# The end of the year 9999.
AT_MS_MAX = 253_402_300_799_999
TOPIC_CHARS_MAX = 249

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_OURS = frozenset((TARGET_HEADER, AT_HEADER, DELAY_HEADER, CANCEL_HEADER))


class Command(NamedTuple):
    """A record of `headrace.delay`, read."""

    id: str
    place: Place
    at_ms: int
    is_cancel: bool
    due_ms: int = 0
    body: bytes = b""


def read_command(message: Message, now_ms: int) -> Command:
    """The command that a record is; ValueError says why it is none."""
    given: dict[str, bytes | None] = {
        name: value for name, value in message.headers if name in _OURS or name == ID_HEADER
    }
    place = Place(message.partition, message.offset)
    at_ms = message.timestamp_ms or now_ms
    if CANCEL_HEADER in given:
        id = given.get(ID_HEADER) or given[CANCEL_HEADER]
        if not id:
            raise ValueError(f"{CANCEL_HEADER} is without an id: {ID_HEADER} names it")
        return Command(read_id(id), place, at_ms, True)
    raw_id = given.get(ID_HEADER)
    # Without an id it cannot be cancelled, but it is a message as any other.
    id_text = message.id if raw_id is None else read_id(raw_id)
    target = read_target(given.get(TARGET_HEADER))
    due_ms = read_due_ms(given, at_ms)
    headers = [pair for pair in message.headers if pair[0] not in _OURS]
    body = pack_message(target, message.key, message.value, headers)
    return Command(id_text, place, at_ms, False, due_ms, body)


def read_target(raw: bytes | None) -> str:
    """The topic that a message is for; ValueError if none can be."""
    if not raw:
        raise ValueError(f"the header {TARGET_HEADER} is missing: which topic is it for?")
    target = raw.decode("utf-8", "replace")
    if len(target) > TOPIC_CHARS_MAX or not _TOPIC.fullmatch(target) or target in (".", ".."):
        raise ValueError(f"{TARGET_HEADER} {target[:TOPIC_CHARS_MAX]!r} is no name of a topic")
    if target.startswith("__") or (target.startswith("headrace.") and target.endswith(".state")):
        raise ValueError(f"{TARGET_HEADER} {target!r} is not for messages")
    return target


def read_due_ms(given: Mapping[str, bytes | None], at_ms: int) -> int:
    """When a message is due by its headers and the time of its record; ValueError says why not."""
    if (AT_HEADER in given) == (DELAY_HEADER in given):
        raise ValueError(f"one of {AT_HEADER} and {DELAY_HEADER} says when, not both or none")
    if AT_HEADER in given:
        text = _text(given[AT_HEADER])
        if not text.isascii() or not text.isdecimal() or len(text) > len(str(AT_MS_MAX)):
            raise ValueError(f"{AT_HEADER} {text[:40]!r} is no time in milliseconds since 1970")
        due_ms = int(text)
    else:
        try:
            due_ms = at_ms + duration_ms(_text(given[DELAY_HEADER])[:64])
        except ValueError as error:
            raise ValueError(f"{DELAY_HEADER}: {error}") from None
    if due_ms > AT_MS_MAX:
        raise ValueError("it is for a time after the year 9999")
    return due_ms


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")
