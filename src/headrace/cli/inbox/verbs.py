"""`headrace inbox`: what the handlers of an application have consumed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.common.durations import parse_duration_ms
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time

app = typer.Typer(help="Look up consumed messages, and forget old ones.", no_args_is_help=True)

COLUMNS = ("id", "consumer", "time")


@app.command()
def find(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")],
    *,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """Say who has consumed a message, and when; exit code 1 when nobody has."""
    with open_cli_store(store) as opened:
        rows = opened.inbox.find(id)
    if not rows:
        raise CliError(
            f"nobody has consumed {id}",
            "or it was long ago: ids are forgotten after their time, seven days by default",
        )
    show_rows(
        [{"id": row.id, "consumer": row.consumer, "time": show_time(row.at_ms)} for row in rows],
        COLUMNS,
        output,
    )


@app.command()
def clean(
    *,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Forget what was consumed longer ago.")
    ] = "7d",
    store: StoreOption,
) -> None:
    """Forget old messages; one that still comes again after that has its effect again."""
    before_ms = round(time.time() * 1000) - parse_duration_ms(older_than, "--older-than")
    count = 0
    with open_cli_store(store) as opened:
        while removed := opened.inbox.clean(before_ms):
            count += removed
    print(f"forgot {count}")
