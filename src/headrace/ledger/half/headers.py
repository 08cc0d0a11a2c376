"""Half messages by headers, for any client: what a record of `headrace.half` says."""

from __future__ import annotations

import re
from typing import NamedTuple

from headrace.client.admin.topics import NeededTopic
from headrace.client.delayed import AT_HEADER, CANCEL_HEADER, DELAY_HEADER, TARGET_HEADER
from headrace.client.message import ID_HEADER, Message
from headrace.ledger.delay.headers import read_due_ms, read_target
from headrace.ledger.half.bodies import Prepared
from headrace.ledger.half.states import Event
from headrace.ledger.records import read_id
from headrace.timing.durations import duration_ms

TOPIC = "headrace.half"
CHECK_PREFIX = f"{TOPIC}.check."
# A producer group that comes back within this time still finds what it was asked.
CHECK_CONFIG = {"retention.ms": "86400000"}
# As many members of a producer group can answer at once.
CHECK_PARTITIONS = 4

HALF_HEADER = "headrace-half"
GROUP_HEADER = "headrace-group"
CHECK_AFTER_HEADER = "headrace-check-after"
# In questions to checkers: the number of the check, and when the message was prepared.
CHECK_HEADER = "headrace-check"
PREPARED_HEADER = "headrace-prepared-at"

CHECK_AFTER_MS_MAX = 30 * 86_400_000
GROUP_CHARS_MAX = 249 - len(CHECK_PREFIX)

_COMMANDS = (Event.PREPARE, Event.COMMIT, Event.ROLLBACK)
_DELAYS = (DELAY_HEADER, AT_HEADER)
# Not delivered; a cancel would undo the delay that a half message may have.
OURS = frozenset(
    (
        ID_HEADER, HALF_HEADER, TARGET_HEADER, GROUP_HEADER, CHECK_AFTER_HEADER, CANCEL_HEADER,
        *_DELAYS,
    )
)  # fmt: skip
_GROUP = re.compile(r"[A-Za-z0-9._-]+")


class Said(NamedTuple):
    """What a record says: prepare (with the message), commit or rollback of an id."""

    event: Event
    id: str
    prepared: Prepared | None = None
    # How long the sender may need; None for what the service's settings say.
    check_after_ms: int | None = None


def check_topic(group: str) -> NeededTopic:
    """Where a producer group is asked what became of its local transactions."""
    return NeededTopic(CHECK_PREFIX + group, CHECK_PARTITIONS, CHECK_CONFIG)


def read_said(message: Message) -> Said:
    """What a record of `headrace.half` says; ValueError with the reason why it says nothing."""
    given = {name: value or b"" for name, value in message.headers if name in OURS}
    kind = _text(given.get(HALF_HEADER, b""))
    if kind not in _COMMANDS:
        raise ValueError(f"{HALF_HEADER} is {kind[:40]!r}, not prepare, commit or rollback")
    event = Event(kind)
    id = read_id(given.get(ID_HEADER, b""))
    if event is not Event.PREPARE:
        return Said(event, id)
    delays = [(name, _text(given[name])) for name in _DELAYS if name in given]
    if delays:
        # What the delay service would refuse later is refused now.
        read_due_ms(given, message.timestamp_ms)
    prepared = Prepared(
        checked_target(given.get(TARGET_HEADER)),
        checked_group(_text(given.get(GROUP_HEADER, b""))),
        message.key,
        message.value,
        tuple(header for header in message.headers if header[0] not in OURS),
        delays[0] if delays else None,
    )
    after = given.get(CHECK_AFTER_HEADER)
    return Said(event, id, prepared, None if after is None else checked_after(_text(after)))


def checked_target(raw: bytes | None) -> str:
    """The topic that a message is for; ValueError if none can be."""
    target = read_target(raw)
    if target == TOPIC or target.startswith(f"{TOPIC}."):
        raise ValueError(f"{TARGET_HEADER} {target!r} is not for messages")
    return target


def checked_group(group: str) -> str:
    """The producer group, if it can be asked; ValueError if not."""
    if not _GROUP.fullmatch(group) or len(group) > GROUP_CHARS_MAX:
        raise ValueError(
            f"the producer group ({GROUP_HEADER}) is {group[:GROUP_CHARS_MAX]!r}, not 1 to "
            f"{GROUP_CHARS_MAX} letters, digits, dots, underscores and dashes"
        )
    return group


def checked_after(after: str | int) -> int:
    """Milliseconds until the first check; ValueError if that is no fit duration."""
    try:
        after_ms = duration_ms(after)
    except ValueError as problem:
        raise ValueError(f"{CHECK_AFTER_HEADER}: {problem}") from None
    if not 0 <= after_ms <= CHECK_AFTER_MS_MAX:
        raise ValueError(f"{CHECK_AFTER_HEADER} {after!r} is longer than 30 days")
    return after_ms


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
