"""The commands of `headrace.half`, for any client: prepare, commit and rollback, as headers."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.client.admin.topics import NeededTopic
from headrace.client.delayed import (
    AT_HEADER,
    CANCEL_HEADER,
    DELAY_HEADER,
    TARGET_HEADER,
    read_due_ms,
    read_target,
)
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.half.states import Event
from headrace.ledger.records import pack_message, read_id, unpack_message
from headrace.timing.durations import duration_ms

HALF_TOPIC = "headrace.half"
CHECK_PREFIX = f"{HALF_TOPIC}.check."
# A producer group that was away for less than this still finds its checks.
CHECK_CONFIG = {"retention.ms": "86400000"}
# This many members of a producer group can answer checks at the same time.
CHECK_PARTITIONS = 4

HALF_HEADER = "headrace-half"
GROUP_HEADER = "headrace-group"
CHECK_AFTER_HEADER = "headrace-check-after"
# In checks: which check of the message this is, and when the message was prepared.
CHECK_HEADER = "headrace-check"
PREPARED_HEADER = "headrace-prepared-at"

CHECK_AFTER_MS_MAX = 30 * 86_400_000
GROUP_CHARS_MAX = 249 - len(CHECK_PREFIX)

Headers = tuple[tuple[str, bytes | None], ...]

_COMMANDS = (Event.PREPARE, Event.COMMIT, Event.ROLLBACK)
_DELAYS = (DELAY_HEADER, AT_HEADER)
# Not delivered with the message; a cancel would undo the delay that a half message may have.
COMMAND_HEADERS = frozenset(
    (
        ID_HEADER, HALF_HEADER, TARGET_HEADER, GROUP_HEADER, CHECK_AFTER_HEADER, CANCEL_HEADER,
        *_DELAYS,
    )
)  # fmt: skip
_GROUP_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Prepared(NamedTuple):
    """A prepared message; `headers` are those that it is delivered with."""

    target: str
    # The producer group whose checker is asked about it.
    group: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    # `headrace-delay` or `headrace-deliver-at` with its value, if it is to be delivered later.
    delay: tuple[str, str] | None = None

    def pack(self) -> bytes:
        """The body of its entry."""
        name, when = self.delay or ("", "")
        own = [(self.group, None), (name, when.encode())]
        return pack_message(self.target, self.key, self.value, [*own, *self.headers])

    @classmethod
    def unpack(cls, body: bytes) -> Prepared:
        """The message that `pack` made this body of."""
        target, key, value, [(group, _), (name, when), *headers] = unpack_message(body)
        delay = (name, (when or b"").decode()) if name else None
        return cls(target, group, key, value, tuple(headers), delay)


class HalfCommand(NamedTuple):
    """A prepare (with the message), commit or rollback of an id."""

    event: Event
    id: str
    prepared: Prepared | None = None
    # How long the sender may need; None for the service's own setting.
    check_after_ms: int | None = None


def check_topic(group: str) -> NeededTopic:
    """The topic in which a producer group is asked about its local transactions."""
    return NeededTopic(CHECK_PREFIX + group, CHECK_PARTITIONS, CHECK_CONFIG)


def read_command(message: Message) -> HalfCommand:
    """The command in a record of `headrace.half`; ValueError if its headers are wrong."""
    given = {name: value or b"" for name, value in message.headers if name in COMMAND_HEADERS}
    kind = _text(given.get(HALF_HEADER, b""))
    if kind not in _COMMANDS:
        raise ValueError(f"{HALF_HEADER} is {kind[:40]!r}; use prepare, commit or rollback")
    event = Event(kind)
    id = read_id(given.get(ID_HEADER, b""))
    if event is not Event.PREPARE:
        return HalfCommand(event, id)
    delays = [(name, _text(given[name])) for name in _DELAYS if name in given]
    if delays:
        # Refuse now what the delay service would refuse later.
        read_due_ms(given, message.timestamp_ms)
    prepared = Prepared(
        checked_target(given.get(TARGET_HEADER)),
        checked_group(_text(given.get(GROUP_HEADER, b""))),
        message.key,
        message.value,
        tuple(header for header in message.headers if header[0] not in COMMAND_HEADERS),
        delays[0] if delays else None,
    )
    after = given.get(CHECK_AFTER_HEADER)
    check_after_ms = None if after is None else checked_after(_text(after))
    return HalfCommand(event, id, prepared, check_after_ms)


def checked_target(raw: bytes | None) -> str:
    """The topic to deliver to; ValueError if it is missing or cannot be one."""
    target = read_target(raw)
    if target == HALF_TOPIC or target.startswith(f"{HALF_TOPIC}."):
        raise ValueError(f"{TARGET_HEADER} {target!r} is an internal topic")
    return target


def checked_group(group: str) -> str:
    """The producer group; ValueError if its name cannot be part of a topic's name."""
    if not _GROUP_NAME.fullmatch(group) or len(group) > GROUP_CHARS_MAX:
        raise ValueError(
            f"the producer group ({GROUP_HEADER}) is {group[:GROUP_CHARS_MAX]!r}; use 1 to "
            f"{GROUP_CHARS_MAX} letters, digits, dots, underscores and dashes"
        )
    return group


def checked_after(after: str | int) -> int:
    """Milliseconds until the first check; ValueError if that is not a valid duration."""
    try:
        after_ms = duration_ms(after)
    except ValueError as problem:
        raise ValueError(f"{CHECK_AFTER_HEADER}: {problem}") from None
    if not 0 <= after_ms <= CHECK_AFTER_MS_MAX:
        raise ValueError(f"{CHECK_AFTER_HEADER} {after!r} is too long; the limit is 30 days")
    return after_ms


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
