"""`headrace delay`: list, show, cancel and reschedule delayed messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.output import (
    Output,
    OutputOption,
    as_text,
    headers_text,
    show_all,
    show_json,
)
from headrace.cli.common.parsing import now_ms, parse_duration_ms, show_duration
from headrace.client.times import parse_time_ms, show_time

if TYPE_CHECKING:
    from headrace.client.producer import Producer
    from headrace.ledger.delay.service import DelayedMessage

app = typer.Typer(
    help="List, show, cancel and reschedule delayed messages.",
    no_args_is_help=True,
)

COLUMNS = ("id", "target", "due", "left", "key", "bytes")
SEND_SECONDS = 30.0

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of a delayed message.")]


@app.command("list")
@with_groups
def list_messages(
    *,
    target: Annotated[str | None, typer.Option(help="Only those to this topic.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 100,
    kafka: KafkaOptions,
    output: OutputOption = Output.table,
) -> None:
    """List delayed messages, the next due one first."""
    from itertools import islice

    with kafka.settings() as settings:
        from headrace.ledger.delay.service import pending

        chosen = (one for one in pending(settings) if target in (None, one.target))
        found = list(islice(chosen, limit))
    show_all(found, COLUMNS, output, row=_line, details=_details)


@app.command()
@with_groups
def show(id: IdArgument, *, kafka: KafkaOptions) -> None:
    """Show a delayed message with its payload, as JSON."""
    with kafka.settings() as settings:
        found = _find(settings, id)
    show_json(_details(found))


@app.command()
@with_groups
def cancel(
    id: IdArgument,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also if it has not arrived yet; it is cancelled if it comes within a day.",
        ),
    ] = False,
    kafka: KafkaOptions,
) -> None:
    """Cancel a delayed message; no effect if it is delivered first."""
    with kafka.settings() as settings:
        if not force:
            _find(settings, id)
        with _producer(settings) as producer:
            producer.cancel_delayed(id).result(SEND_SECONDS)
    print(f"asked to cancel {id}")


@app.command()
@with_groups
def reschedule(
    id: IdArgument,
    *,
    after: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long from now: 15m, 30d.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="A time such as 2030-01-01T12:00Z, or @MS.")
    ] = None,
    kafka: KafkaOptions,
) -> None:
    """Deliver a message at another time; if it is delivered first, it comes twice."""
    due_ms = _due_ms(after, at)
    with kafka.settings() as settings:
        found = _find(settings, id)
        from headrace.client.message import ID_HEADER

        headers = [pair for pair in found.headers if pair[0] != ID_HEADER]
        headers.append((ID_HEADER, id.encode()))
        with _producer(settings) as producer:
            producer.send(
                found.target, found.value, key=found.key, headers=headers, at=due_ms
            ).result(SEND_SECONDS)
    print(f"{id} is due at {show_time(due_ms)}")


def _producer(settings: dict[str, Any]) -> Producer:
    from headrace.client.producer import Producer
    from headrace.client.settings import settings_of

    return Producer(settings_of(settings, "producer"))


def _find(settings: dict[str, Any], id: str) -> DelayedMessage:
    from headrace.ledger.delay.service import pending

    for found in pending(settings, id):
        return found
    raise CliError(
        f"there is no delayed message with id {id!r}",
        "headrace delay list shows the ids; it may have been delivered already",
    )


def _due_ms(after: str | None, at: str | None) -> int:
    if (after is None) == (at is None):
        raise CliError(
            "one of --after and --at is needed", "--after 15m, or --at 2030-01-01T12:00Z", 2
        )
    if after is not None:
        return now_ms() + parse_duration_ms(after, "--after")
    assert at is not None
    due_ms = int(at[1:]) if at.startswith("@") and at[1:].isdecimal() else parse_time_ms(at)
    if due_ms is None:
        raise CliError(
            f"--at {at!r} is not a time", "use a time such as 2030-01-01T12:00Z, or @MS", 2
        )
    return due_ms


def _line(found: DelayedMessage) -> dict[str, object]:
    left_ms = found.due_ms - now_ms()
    return {
        "id": found.id,
        "target": found.target,
        "due": show_time(found.due_ms),
        "left": show_duration(left_ms),
        "key": None if found.key is None else found.key.decode("utf-8", "replace"),
        "bytes": len(found.value or b""),
    }


def _details(found: DelayedMessage) -> dict[str, Any]:
    return {
        "id": found.id,
        "target": found.target,
        "due": show_time(found.due_ms),
        "due_ms": found.due_ms,
        "scheduled": show_time(found.at_ms),
        "key": as_text(found.key),
        "value": as_text(found.value),
        "headers": headers_text(found.headers),
    }
