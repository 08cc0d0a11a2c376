"""`headrace producer`: switch sending to a topic off and on, or limit it, while producers run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import (
    BootstrapOption,
    PropertyOption,
    client_config,
    client_errors,
)
from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_rows

if TYPE_CHECKING:
    from headrace.client.switches import SwitchState

app = typer.Typer(
    help="Switch sending to a topic off and on, or limit it, while producers run.",
    no_args_is_help=True,
)

TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]


@app.command()
def off(
    topics: TopicsArgument, *, bootstrap: BootstrapOption, properties: PropertyOption = None
) -> None:
    """Refuse records to these topics; an outbox keeps them until they are on again."""
    _turn(topics, lambda state: replace(state, is_on=False), bootstrap, properties)


@app.command()
def on(
    topics: TopicsArgument, *, bootstrap: BootstrapOption, properties: PropertyOption = None
) -> None:
    """Take records to these topics again; a limit stays."""
    _turn(topics, lambda state: replace(state, is_on=True), bootstrap, properties)


@app.command()
def limit(
    topic: TopicArgument,
    per_second: Annotated[
        str,
        typer.Argument(
            metavar="RECORDS",
            help="Records a second for each process, or none.",
            show_default=False,
        ),
    ],
    *,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Let each process send so many records a second to a topic; `none` takes the limit away."""
    wanted = _rate(per_second)
    _turn([topic], lambda state: replace(state, limit_per_s=wanted), bootstrap, properties)


@app.command("list")
def list_(
    *,
    output: OutputOption = Output.table,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Show the topics that are switched off or limited."""
    from headrace.client.switches import Switches

    config = client_config(bootstrap, properties)
    with client_errors(bootstrap), Switches(config) as switches:
        states = switches.states()
    rows = [
        {"topic": topic, "state": "on" if state.is_on else "off", "limit": state.limit_per_s}
        for topic, state in sorted(states.items())
    ]
    show_rows(rows, ("topic", "state", "limit"), output)


def _turn(
    topics: list[str],
    change: Callable[[SwitchState], SwitchState],
    bootstrap: str,
    properties: list[str] | None,
) -> None:
    from headrace.client.switches import Switches, turn

    config = client_config(bootstrap, properties)
    with client_errors(bootstrap):
        with Switches(config) as switches:
            if not switches.is_ready:
                raise CliError("the switches cannot be read now", "is the broker busy?")
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
        raise CliError(f"{text!r} is not a number of records a second", "500, 0.5 or none", 2)
    return rate
