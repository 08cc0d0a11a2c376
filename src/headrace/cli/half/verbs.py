"""`headrace half`: messages that wait for a decision, looked at and decided."""

from __future__ import annotations

import time
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.arguments import YesOption, confirm
from headrace.cli.common.connection import BootstrapOption, PropertyOption, client_settings
from headrace.cli.common.durations import parse_duration_ms, show_duration
from headrace.cli.common.errors import CliError
from headrace.cli.common.failed import as_text
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.ledger.half.service import HalfStatus

app = typer.Typer(help="List half messages, show one, or decide one by hand.", no_args_is_help=True)

COLUMNS = ("id", "state", "target", "group", "since", "checks", "next")
SEND_SECONDS = 30.0
LOOK_SECONDS = 0.2

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of a half message.")]


class StateChoice(StrEnum):
    """The states that a listing can be limited to."""

    waiting = "waiting"
    parked = "parked"
    committed = "committed"
    rolled_back = "rolled-back"
    early = "early"


@app.command("list")
def list_halves(
    *,
    state: Annotated[StateChoice | None, typer.Option(help="Only those in this state.")] = None,
    group: Annotated[str | None, typer.Option(help="Only those of this producer group.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Those decided in the last day, too.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the next due first.")] = 100,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
    output: OutputOption = Output.table,
) -> None:
    """List half messages that are not decided yet; parked ones wait for a person."""

    def is_chosen(half: HalfStatus) -> bool:
        if group not in (None, half.group):
            return False
        if state is None:
            return everything or not half.is_decided
        return half.state.replace(" ", "-").startswith(state)

    with client_settings(bootstrap, properties) as settings:
        from headrace.ledger.half.service import half_statuses

        found = list(islice(filter(is_chosen, half_statuses(settings)), limit))
    if output is Output.json:
        show_json([_details(half) for half in found])
    else:
        show_rows([_line(half) for half in found], COLUMNS, output)


@app.command()
def show(id: IdArgument, *, bootstrap: BootstrapOption, properties: PropertyOption = None) -> None:
    """Show all that is known of a half message, as JSON."""
    with client_settings(bootstrap, properties) as settings:
        found = _need(settings, id)
    show_json(_details(found))


@app.command()
def resolve(
    id: IdArgument,
    *,
    commit: Annotated[
        bool, typer.Option("--commit/--rollback", help="Deliver it, or drop it for good.")
    ],
    wait: Annotated[
        str, typer.Option(metavar="DURATION", help="How long to wait for the service.")
    ] = "15s",
    yes: YesOption = False,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
) -> None:
    """Decide a half message in its sender's place; the first decision on it wins."""
    wait_ms = parse_duration_ms(wait, "--wait")
    wish = "committed" if commit else "rolled back"
    with client_settings(bootstrap, properties) as settings:
        found = _need(settings, id)
        if found.is_decided:
            raise CliError(f"{id} is {found.state} already")
        confirm(f"{'Deliver' if commit else 'Drop'} {id} ({found.target or 'unknown'})?", yes)
        _decide(settings, id, commit)
        ended = _wait_decided(settings, id, time.monotonic() + wait_ms / 1000)
    if ended is None:
        raise CliError(
            f"the decision is written, but was not carried out within {wait}",
            "is a service running? headrace service half",
        )
    if ended.state != wish:
        raise CliError(f"{id} is {ended.state}: another decision came first")
    if ended.refusal:
        raise CliError(
            f"{id} is committed, but {ended.target} does not take it: {ended.refusal}",
            "the message is in headrace.half.dlq",
        )
    print(f"{id} is {ended.state}")


def _find(settings: dict[str, Any], id: str) -> HalfStatus | None:
    from headrace.ledger.half.service import half_statuses

    return next(half_statuses(settings, id), None)


def _need(settings: dict[str, Any], id: str) -> HalfStatus:
    found = _find(settings, id)
    if found is None:
        raise CliError(
            f"no half message has the id {id!r}",
            "headrace half list --all shows those there are; is a service running?",
        )
    return found


def _decide(settings: dict[str, Any], id: str, commit: bool) -> None:
    from headrace.handlers.context import AppContext

    given = dict(settings)
    context = AppContext(bootstrap=given.pop("bootstrap.servers"), given=given)
    try:
        context.halves.decide(id, is_commit=commit).result(SEND_SECONDS)
    finally:
        context.close()


def _wait_decided(settings: dict[str, Any], id: str, until_s: float) -> HalfStatus | None:
    while True:
        found = _find(settings, id)
        if found is not None and found.is_decided:
            return found
        if time.monotonic() > until_s:
            return None
        time.sleep(LOOK_SECONDS)


def _line(half: HalfStatus) -> dict[str, object]:
    now_ms = round(time.time() * 1000)
    return {
        "id": half.id,
        "state": half.state,
        "target": half.target or None,
        "group": half.group or None,
        "since": show_time(half.at_ms),
        "checks": half.checks,
        "next": None if half.due_ms is None else show_duration(half.due_ms - now_ms),
    }


def _details(half: HalfStatus) -> dict[str, Any]:
    details: dict[str, Any] = {
        "id": half.id,
        "state": half.state,
        "target": half.target or None,
        "group": half.group or None,
        "since": show_time(half.at_ms),
        "checks": half.checks,
        "next": None if half.due_ms is None else show_time(half.due_ms),
        "delay": None if half.delay is None else " ".join(half.delay),
        "refusal": half.refusal or None,
    }
    if not half.is_decided:
        details |= {
            "key": as_text(half.key),
            "value": as_text(half.value),
            "headers": [[name, as_text(value)] for name, value in half.headers],
        }
    return details
