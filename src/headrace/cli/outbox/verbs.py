"""`headrace outbox`: the messages on their way out, and the relay that sends them."""

from __future__ import annotations

import base64
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.durations import parse_duration_ms
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.cli.outbox import relay as outbox_relay
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store.outbox import OutboxRow

app = typer.Typer(
    help="List, confirm and send again what an outbox holds, and run its relay.",
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
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List messages, the newest first."""
    with open_cli_store(store) as opened:
        rows = opened.outbox.latest(state=state, topic=topic, limit=limit)
    if output is Output.json:
        show_json([_details(row) for row in rows])
    else:
        show_rows([_line(row) for row in rows], COLUMNS, output)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")],
    *,
    store: StoreOption,
) -> None:
    """Show all that is known of a message, as JSON."""
    with open_cli_store(store) as opened:
        row = opened.outbox.find(id)
    if row is None:
        raise CliError(f"the outbox has no message {id}", "headrace outbox list shows what it has")
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
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID...]", help="Ids of messages.")
    ] = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="All that have failed.")] = False,
    store: StoreOption,
) -> None:
    """Have the relay send messages again, with the same ids, whatever state they are in."""
    if bool(ids) == failed:
        raise CliError("give ids, or --failed for all that have failed", exit_code=2)
    with open_cli_store(store) as opened:
        count = opened.outbox.resend(ids) if ids else opened.outbox.resend_failed()
        missing = len(ids or ()) - count
    print(f"pending again: {count}")
    if missing > 0:
        raise CliError(f"{missing} of these ids are not in the outbox")


@app.command()
def confirm(
    ids: IdArguments,
    *,
    group: Annotated[
        str | None, typer.Option(help="In the name of this group.", show_default="whoever")
    ] = None,
    store: StoreOption,
) -> None:
    """Confirm messages by hand."""
    with open_cli_store(store) as opened:
        count = opened.outbox.confirm((id, group) for id in ids)
    print(f"confirmed {count}")


@app.command()
def clean(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Remove what was done longer ago.")
    ] = "7d",
    store: StoreOption,
) -> None:
    """Remove messages that are sent, and confirmed if they had to be; the relay does so too."""
    before_ms = round(time.time() * 1000) - parse_duration_ms(older_than, "--older-than")
    count = 0
    with open_cli_store(store) as opened:
        while removed := opened.outbox.clean(before_ms):
            count += removed
    print(f"removed {count}")


app.command()(outbox_relay.relay)


def _line(row: OutboxRow) -> dict[str, object]:
    return {
        "id": row.id,
        "topic": row.topic,
        "state": row.state,
        "created": show_time(row.created_ms),
        "sends": row.sends,
        # Nobody in particular is awaited where the list is empty.
        "waiting": row.waiting if row.waiting != [] else "any",
        "error": row.error,
    }


def _details(row: OutboxRow) -> dict[str, Any]:
    return {
        **row._asdict(),
        "key": _text(row.key),
        "value": _text(row.value),
        "headers": [[name, _text(value)] for name, value in row.headers],
    }


def _text(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
