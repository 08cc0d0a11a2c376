"""`headrace inbox`: what the handlers of an application have consumed."""

from __future__ import annotations

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.options import MessageArgument
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.cli.common.stores import OlderThanOption, StoreOption, open_cli_store, remove_older
from headrace.client.times import show_time

app = typer.Typer(help="Look up consumed messages, and forget old ones.", no_args_is_help=True)

COLUMNS = ("id", "consumer", "time")


@app.command()
def find(
    id: MessageArgument,
    *,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """Show which handlers have consumed a message, and when; exit code 1 if none has."""
    with open_cli_store(store) as opened:
        rows = opened.inbox.find(id)
    if not rows:
        raise CliError(
            f"no handler has consumed {id}",
            "or its id was forgotten: the inbox keeps ids for seven days by default",
        )
    show_rows(
        [{"id": row.id, "consumer": row.consumer, "time": show_time(row.at_ms)} for row in rows],
        COLUMNS,
        output,
    )


@app.command()
def clean(*, older_than: OlderThanOption = "7d", store: StoreOption) -> None:
    """Forget consumed messages; one that comes again after that is handled again."""
    with open_cli_store(store) as opened:
        print(f"forgot {remove_older(older_than, opened.inbox.clean)}")
