"""`headrace bench`: the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from headrace.cli.errors import CliError

CHECKOUT = Path(__file__).parents[3]

app = typer.Typer(help="Compare with other brokers on this machine.", no_args_is_help=True)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def broker(context: typer.Context) -> None:
    """Headrace beside Apache Kafka under the same load; `--help` shows the bench's own options."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise CliError(
            "the benchmarks are not part of the installed package",
            "run ./headrace bench broker in a checkout of the source",
        )
    command = [sys.executable, "-m", "benchmarks", "broker", *context.args]
    raise typer.Exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)
