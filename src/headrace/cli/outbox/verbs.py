"""`headrace outbox`: list, confirm and resend messages of an outbox, and run its relay."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.messages import IdsArgument
from headrace.cli.common.options import LimitOption, MessageArgument
from headrace.cli.common.output import (
    Output,
    OutputOption,
    as_text,
    headers_text,
    show_all,
    show_json,
    show_rows,
)
from headrace.cli.common.stores import OlderThanOption, StoreOption, open_cli_store, remove_older
from headrace.cli.outbox import relay as outbox_relay
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store.outbox import OutboxRow

app = typer.Typer(
    help="List, confirm and resend the messages of an outbox, and run its relay.",
    no_args_is_help=True,
)

COLUMNS = ("id", "topic", "state", "created", "sends", "waiting", "error")
IdArguments = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of messages.")]


class State(StrEnum):
    """States of a message."""

    pending = "pending"
    sent = "sent"
    confirmed = "confirmed"
    failed = "failed"


@app.command("list")
def list_messages(
    *,
    state: Annotated[State | None, typer.Option(help="Only those in this state.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only those to this topic.")] = None,
    limit: LimitOption = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List messages, the newest first."""
    with open_cli_store(store) as opened:
        rows = opened.outbox.latest(state=state, topic=topic, limit=limit)
    show_all(rows, COLUMNS, output, row=_line, details=_details)


@app.command()
def show(id: MessageArgument, *, store: StoreOption) -> None:
    """Show a message with its payload and state, as JSON."""
    with open_cli_store(store) as opened:
        row = opened.outbox.find(id)
    if row is None:
        raise CliError(f"the outbox has no message {id!r}", "headrace outbox list shows the ids")
    show_json(_details(row))


@app.command()
def counts(*, store: StoreOption, output: OutputOption = Output.table) -> None:
    """Count the messages in each state."""
    with open_cli_store(store) as opened:
        found = opened.outbox.counts()
    rows = [{"state": state, "messages": count} for state, count in found.items()]
    show_rows(rows, ("state", "messages"), output)


@app.command()
def resend(
    ids: IdsArgument = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="All that have failed.")] = False,
    store: StoreOption,
) -> None:
    """Make the relay send messages again with the same ids, whatever their state."""
    if bool(ids) == failed:
        raise CliError("no messages are named", "give ids, or --failed for all that have failed", 2)
    with open_cli_store(store) as opened:
        count = opened.outbox.resend(ids) if ids else opened.outbox.resend_failed()
        missing = len(ids or ()) - count
    print(f"pending again: {count}")
    if missing > 0:
        raise CliError(
            f"{missing} of these ids are not in the outbox", "headrace outbox list shows the ids"
        )


@app.command()
def confirm(
    ids: IdArguments,
    *,
    group: Annotated[
        str | None, typer.Option(help="On behalf of this group.", show_default="any group")
    ] = None,
    store: StoreOption,
) -> None:
    """Confirm messages by hand."""
    with open_cli_store(store) as opened:
        count = opened.outbox.confirm((id, group) for id in ids)
    print(f"confirmed {count}")


@app.command()
def clean(*, older_than: OlderThanOption = "7d", store: StoreOption) -> None:
    """Remove messages that are sent, and confirmed if they had to be; the relay does so too."""
    with open_cli_store(store) as opened:
        print(f"removed {remove_older(older_than, opened.outbox.clean)}")


app.command()(outbox_relay.relay)


def _line(row: OutboxRow) -> dict[str, object]:
    return {
        "id": row.id,
        "topic": row.topic,
        "state": row.state,
        "created": show_time(row.created_ms),
        "sends": row.sends,
        # An empty list means that any group may confirm.
        "waiting": row.waiting if row.waiting != [] else "any",
        "error": row.error,
    }


def _details(row: OutboxRow) -> dict[str, Any]:
    return {
        **row._asdict(),
        "key": as_text(row.key),
        "value": as_text(row.value),
        "headers": headers_text(row.headers),
    }
