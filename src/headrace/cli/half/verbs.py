"""`headrace half`: list, show and decide half messages."""

from __future__ import annotations

import time
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import YesOption, confirm
from headrace.cli.common.output import (
    Output,
    OutputOption,
    as_text,
    headers_text,
    show_all,
    show_json,
)
from headrace.cli.common.parsing import now_ms, parse_duration_ms, show_duration
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
@with_groups
def list_halves(
    *,
    state: Annotated[StateChoice | None, typer.Option(help="Only those in this state.")] = None,
    group: Annotated[str | None, typer.Option(help="Only those of this producer group.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those decided in the last day.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 100,
    kafka: KafkaOptions,
    output: OutputOption = Output.table,
) -> None:
    """List half messages that are not decided yet; parked ones wait for an operator."""

    def is_chosen(half: HalfStatus) -> bool:
        if group not in (None, half.group):
            return False
        if state is None:
            return everything or not half.is_decided
        return half.state.replace(" ", "-").startswith(state)

    with kafka.settings() as settings:
        from headrace.ledger.half.service import half_statuses

        found = list(islice(filter(is_chosen, half_statuses(settings)), limit))
    show_all(found, COLUMNS, output, row=_line, details=_details)


@app.command()
@with_groups
def show(id: IdArgument, *, kafka: KafkaOptions) -> None:
    """Show a half message with its payload and state, as JSON."""
    with kafka.settings() as settings:
        found = _need(settings, id)
    show_json(_details(found))


@app.command()
@with_groups
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
    kafka: KafkaOptions,
) -> None:
    """Decide a half message instead of its sender; the first decision wins."""
    wait_ms = parse_duration_ms(wait, "--wait")
    wish = "committed" if commit else "rolled back"
    with kafka.settings() as settings:
        found = _need(settings, id)
        if found.is_decided:
            raise CliError(
                f"{id} is {found.state} already", "only an undecided half message can be decided"
            )
        confirm(f"{'Deliver' if commit else 'Drop'} {id} ({found.target or 'unknown'})?", yes)
        _decide(settings, id, commit)
        ended = _wait_decided(settings, id, time.monotonic() + wait_ms / 1000)
    if ended is None:
        raise CliError(
            f"the decision is written, but no service has carried it out within {wait}",
            "is a service running? headrace service half",
        )
    if ended.state != wish:
        raise CliError(
            f"{id} is {ended.state}: another decision came first", "a decision cannot be changed"
        )
    if ended.refusal:
        raise CliError(
            f"{id} is committed, but {ended.target} refused it: {ended.refusal}",
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
            f"there is no half message with id {id!r}",
            "headrace half list --all shows the ids; is a service running?",
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
    return {
        "id": half.id,
        "state": half.state,
        "target": half.target or None,
        "group": half.group or None,
        "since": show_time(half.at_ms),
        "checks": half.checks,
        "next": None if half.due_ms is None else show_duration(half.due_ms - now_ms()),
    }


def _details(half: HalfStatus) -> dict[str, Any]:
    details: dict[str, Any] = {
        **_line(half),
        "next": None if half.due_ms is None else show_time(half.due_ms),
        "delay": None if half.delay is None else " ".join(half.delay),
        "refusal": half.refusal or None,
    }
    if not half.is_decided:
        details |= {
            "key": as_text(half.key),
            "value": as_text(half.value),
            "headers": headers_text(half.headers),
        }
    return details
