"""`headrace bench`: run the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from headrace.cli.common.errors import CliError

CHECKOUT = Path(__file__).parents[4]
# Each bench has its own options and its own help.
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

BENCHES = {
    "broker": "Headrace and Apache Kafka under the same load; `--help` shows its options.",
    "groups": "The same for rebalances, offset commits, transactions and a coordinator's start.",
    "handlers": "Handlers, a hand-written loop, FastStream, aiokafka and pyrallel-consumer.",
    "dispatch": "The dispatcher, a plain consumer group, Celery and RQ.",
    "spark": "The Spark source and Spark's official Kafka connector.",
    "services": "Delayed messages on Headrace and on Apache Kafka, and Celery on Redis.",
}

app = typer.Typer(help="Compare with brokers and clients on this machine.", no_args_is_help=True)


def _bench(name: str) -> Callable[[typer.Context], None]:
    def verb(context: typer.Context) -> None:
        run(name, context.args)

    return verb


def run(name: str, arguments: list[str]) -> None:
    """Run a bench of the checkout and exit as it does."""
    if not (CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise CliError(
            "the benchmarks are not part of the installed package",
            f"run ./headrace bench {name} in a checkout of the source",
        )
    command = [sys.executable, "-m", "benchmarks", name, *arguments]
    raise typer.Exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)


for _name, _help in BENCHES.items():
    app.command(_name, help=_help, context_settings=PASSED_ON)(_bench(_name))
