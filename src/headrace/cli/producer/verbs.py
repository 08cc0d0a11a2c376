"""`headrace producer`: switch sending to a topic off and on, or limit it, while producers run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import TopicArgument, TopicsArgument
from headrace.cli.common.output import Output, OutputOption, show_rows

if TYPE_CHECKING:
    from headrace.client.switches import SwitchState

app = typer.Typer(
    help="Switch sending to a topic off and on, or limit it, while producers run.",
    no_args_is_help=True,
)


@app.command()
@with_groups
def off(topics: TopicsArgument, *, kafka: KafkaOptions) -> None:
    """Refuse records to topics; an outbox keeps its messages until they are on again."""
    _turn(topics, lambda state: replace(state, is_on=False), kafka)


@app.command()
@with_groups
def on(topics: TopicsArgument, *, kafka: KafkaOptions) -> None:
    """Accept records to topics again; a limit stays."""
    _turn(topics, lambda state: replace(state, is_on=True), kafka)


@app.command()
@with_groups
def limit(
    topic: TopicArgument,
    per_second: Annotated[
        str,
        typer.Argument(
            metavar="RECORDS",
            help="Records a second of each process, or none.",
            show_default=False,
        ),
    ],
    *,
    kafka: KafkaOptions,
) -> None:
    """Limit how many records a second each process sends to a topic; `none` removes the limit."""
    wanted = _rate(per_second)
    _turn([topic], lambda state: replace(state, limit_per_s=wanted), kafka)


@app.command("list")
@with_groups
def list_(
    *,
    output: OutputOption = Output.table,
    kafka: KafkaOptions,
) -> None:
    """Show the topics that are switched off or limited."""
    from headrace.client.switches import Switches

    config = kafka.config()
    with kafka.errors(), Switches(config) as switches:
        states = switches.states()
    rows = [
        {"topic": topic, "state": "on" if state.is_on else "off", "limit": state.limit_per_s}
        for topic, state in sorted(states.items())
    ]
    show_rows(rows, ("topic", "state", "limit"), output)


def _turn(
    topics: list[str],
    change: Callable[[SwitchState], SwitchState],
    kafka: KafkaOptions,
) -> None:
    from headrace.client.switches import Switches, turn

    config = kafka.config()
    with kafka.errors():
        with Switches(config) as switches:
            if not switches.is_ready:
                raise CliError("the switches could not be read in time", "is the broker busy?")
            states = {topic: change(switches.state(topic)) for topic in topics}
        for topic, state in states.items():
            turn(config, topic, state)
            print(f"{topic} is {_words(state)}")


def _words(state: SwitchState) -> str:
    limit = "" if state.limit_per_s is None else f", {state.limit_per_s:g} records/s a process"
    return f"{'on' if state.is_on else 'off'}{limit}"


def _rate(text: str) -> float | None:
    if text == "none":
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise CliError(
            f"{text!r} is not a number of records a second",
            "use 500, 0.5 or none",
            2,
        )
    return rate
