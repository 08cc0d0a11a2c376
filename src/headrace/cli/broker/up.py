"""`headrace up`: start the platform and print what runs where."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.cli.broker.serving import ServeOptions, address, serve
from headrace.config import Settings, log_dirs

if TYPE_CHECKING:
    from headrace.broker import Broker


def run_up(options: ServeOptions) -> None:
    """Serve until Ctrl-C; prints where the broker is and how to reach it."""
    serve(options, _announce, _services)
    print("stopped", flush=True)


async def _services(broker: Broker, settings: Settings) -> None:
    if settings.list("headrace.services"):
        from headrace.cli.broker.services import run_services

        await run_services(broker, settings, address(broker))


def _announce(broker: Broker, settings: Settings) -> None:
    rows = {
        "broker": address(broker),
        "data": ", ".join(log_dirs(settings)),
        "services": ", ".join(settings.list("headrace.services")) or "none",
        "try": f"headrace produce -b {address(broker)} greetings",
        "stop": "Ctrl-C",
    }
    if sys.stdout.isatty():
        _show_panel(rows)
    else:
        print("Headrace is up")
        for name, value in rows.items():
            print(f"  {name:<10}{value}")
        sys.stdout.flush()


def _show_panel(rows: dict[str, str]) -> None:
    from rich.console import Console
    from rich.panel import Panel
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(name, value)
    Console(highlight=False).print(
        Panel(grid, title="Headrace is up", title_align="left", border_style="cyan", expand=False)
    )
