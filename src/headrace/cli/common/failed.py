"""Failed messages on the command line: how some are chosen, and how one is shown."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.errors import CliError

if TYPE_CHECKING:
    from headrace.client.message import Message
    from headrace.store.failed_messages import Selection
    from headrace.store.fingerprints import Failure

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of messages.")
]
FingerprintOption = Annotated[
    str | None, typer.Option("--fingerprint", "-f", help="All with this failure.")
]
HandlerOption = Annotated[str | None, typer.Option("--handler", help="Only those of this handler.")]
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="Only those from this topic.")
]
AllOption = Annotated[bool, typer.Option("--all", help="All there are.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Say what would happen, and do nothing.")
]
LimitOption = Annotated[int, typer.Option(min=1, help="At most so many.")]


def choose(
    ids: list[str] | None,
    fingerprint: str | None,
    handler: str | None,
    topic: str | None,
    everything: bool,
) -> Selection:
    """What a change is for; it must be said, so that nothing happens to all by a slip."""
    from headrace.store.failed_messages import Selection

    named = bool(ids or fingerprint or handler or topic)
    if named == everything:
        raise CliError(
            "say which messages" if not named else "--all leaves no choice to the others",
            "ids, --fingerprint, --handler or --topic; or --all",
            2,
        )
    return Selection(tuple(ids or ()), fingerprint, handler, topic)


def message_details(handler: str, message: Message, failure: Failure) -> dict[str, Any]:
    """All that is known of a failed message, for JSON."""
    return {
        "id": message.id,
        "handler": handler,
        "source": message.source,
        "timestamp_ms": message.timestamp_ms,
        "key": as_text(message.key),
        "value": as_text(message.value),
        "headers": [[name, as_text(value)] for name, value in message.headers],
        "error": failure.error,
        "place": failure.place,
        "fingerprint": failure.fingerprint,
        "traceback": failure.traceback,
    }


def as_text(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text where they are UTF-8, else marked as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
