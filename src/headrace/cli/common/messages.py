"""Failed messages on the command line: how a verb selects some, and how one is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.options import DryRunOption
from headrace.cli.common.output import as_text, headers_text

if TYPE_CHECKING:
    from headrace.client.message import Message
    from headrace.store.failed_messages import MessageSelection
    from headrace.store.fingerprints import Failure

IdsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of messages.")
]
HandlerOption = Annotated[str | None, typer.Option("--handler", help="Only those of this handler.")]


@dataclass(frozen=True, kw_only=True)
class MessageFilter:
    """Options that limit a listing of failed messages."""

    fingerprint: Annotated[
        str | None, typer.Option("--fingerprint", "-f", help="Only those with this failure.")
    ] = None
    handler: HandlerOption = None
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only those from this topic.")
    ] = None

    def chosen(self, ids: list[str] | None = None) -> MessageSelection:
        """The messages that match, of these ids or of all."""
        from headrace.store.failed_messages import MessageSelection

        return MessageSelection(tuple(ids or ()), self.fingerprint, self.handler, self.topic)


@dataclass(frozen=True, kw_only=True)
class MessageChoice(MessageFilter):
    """Arguments and options that select the failed messages to change."""

    ids: IdsArgument = None
    everything: Annotated[bool, typer.Option("--all", help="All messages.")] = False
    dry_run: DryRunOption = False

    def required(self) -> MessageSelection:
        """The messages to change; CliError if none are named: a slip must not change all."""
        named = bool(self.ids or self.fingerprint or self.handler or self.topic)
        if named == self.everything:
            raise CliError(
                "--all cannot be combined with a choice" if named else "no messages are named",
                "give ids, --fingerprint, --handler or --topic; or --all",
                2,
            )
        return self.chosen(self.ids)


def message_details(handler: str, message: Message, failure: Failure) -> dict[str, Any]:
    """A failed message with its payload and traceback, for JSON."""
    return {
        "id": message.id,
        "handler": handler,
        "source": message.source,
        "timestamp_ms": message.timestamp_ms,
        "key": as_text(message.key),
        "value": as_text(message.value),
        "headers": headers_text(message.headers),
        "error": failure.error,
        "place": failure.place,
        "fingerprint": failure.fingerprint,
        "traceback": failure.traceback,
    }
