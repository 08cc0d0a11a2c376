"""`headrace bench`: the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from headrace.cli.common.errors import CliError

CHECKOUT = Path(__file__).parents[4]
# The bench has its own options, and its own help.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

app = typer.Typer(help="Compare with brokers and clients on this machine.", no_args_is_help=True)


@app.command(context_settings=PASSED_ON)
def broker(context: typer.Context) -> None:
    """Headrace beside Apache Kafka under the same load; `--help` shows the bench's own options."""
    run("broker", context.args)


@app.command(context_settings=PASSED_ON)
def groups(context: typer.Context) -> None:
    """The same for rebalances, offset commits, transactions and a coordinator's start."""
    run("groups", context.args)


@app.command(context_settings=PASSED_ON)
def handlers(context: typer.Context) -> None:
    """Handlers beside a loop by hand, FastStream, aiokafka and pyrallel-consumer."""
    run("handlers", context.args)


@app.command(context_settings=PASSED_ON)
def dispatch(context: typer.Context) -> None:
    """The dispatcher beside a plain consumer group, Celery and RQ."""
    run("dispatch", context.args)


@app.command(context_settings=PASSED_ON)
def spark(context: typer.Context) -> None:
    """The Spark source beside Spark's official Kafka connector."""
    run("spark", context.args)


@app.command(context_settings=PASSED_ON)
def services(context: typer.Context) -> None:
    """Delayed messages on Headrace and on Apache Kafka, beside Celery on Redis."""
    run("services", context.args)


def run(name: str, arguments: list[str]) -> None:
    """Run a bench of the checkout and exit as it does."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise CliError(
            "the benchmarks are not part of the installed package",
            f"run ./headrace bench {name} in a checkout of the source",
        )
    command = [sys.executable, "-m", "benchmarks", name, *arguments]
    raise typer.Exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)
