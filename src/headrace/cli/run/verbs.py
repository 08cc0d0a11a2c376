"""`headrace run`: run the handlers of an application."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.loading import load_object
from headrace.cli.common.processes import start_logging

if TYPE_CHECKING:
    from headrace.handlers.app import App


def run(
    target: Annotated[str, typer.Argument(help="The app to run.", metavar="MODULE:APP")],
    bootstrap: Annotated[
        str | None,
        typer.Option("--bootstrap", "-b", help="Brokers instead of those in the code."),
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Store URL instead of the one in the code.")
    ] = None,
) -> None:
    """Run an application's handlers until Ctrl-C or SIGTERM; running messages finish and commit.

    Run as many as you like: processes of the same groups share the partitions.
    """
    app = load_app(target)
    if bootstrap:
        app.bootstrap = bootstrap
    if store:
        app.store_url = store
    start_logging()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: app.request_stop())
    print(f"running {', '.join(app.handlers)} on {app.bootstrap}", flush=True)
    app.run()


def load_app(target: str) -> App:
    """The App object at MODULE:NAME, with the working directory on the path."""
    from headrace.handlers.app import App

    found = load_object(target, App, "an App", "headrace run shop:app", "app = App(...)")
    if not found.handlers and not found.tables:
        raise CliError(f"{target} has no handlers", 'add one with @app.handler("orders")')
    return found
