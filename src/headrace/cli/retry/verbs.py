"""`headrace retry`: list the messages that wait for a retry, retry them now or drop them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.messages import (
    IdsArgument,
    MessageChoice,
    MessageFilter,
    message_details,
)
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import LimitOption, YesOption, confirm
from headrace.cli.common.output import Output, OutputOption, show_all
from headrace.cli.common.parsing import now_ms
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store import Store
    from headrace.store.failed_messages import MessageSelection
    from headrace.store.retries import ParkedMessage

app = typer.Typer(
    help="List messages that wait for a retry, retry them now or drop them.", no_args_is_help=True
)

COLUMNS = ("id", "handler", "state", "attempts", "next", "fingerprint", "error")


@app.command("list")
@with_groups
def list_messages(
    ids: IdsArgument = None,
    *,
    filter: MessageFilter,
    limit: LimitOption = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List parked messages, the next one first; JSON has payload and traceback too."""
    with open_cli_store(store) as opened:
        found = opened.retries.find(filter.chosen(ids), limit)
    at_ms = now_ms()
    row, details = partial(_line, at_ms=at_ms), partial(_details, at_ms=at_ms)
    show_all(found, COLUMNS, output, row=row, details=details)


@app.command()
@with_groups
def now(*, choice: MessageChoice, store: StoreOption) -> None:
    """Retry messages at once; one that is behind another of its key still waits for it."""
    chosen = choice.required()
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if choice.dry_run:
            print(f"would be tried now: {count}")
            return
        opened.retries.make_due(chosen, now_ms())
    print(f"due now: {count}")


@app.command()
@with_groups
def drop(*, choice: MessageChoice, yes: YesOption = False, store: StoreOption) -> None:
    """Delete messages: they are neither retried nor become dead letters."""
    chosen = choice.required()
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if choice.dry_run:
            print(f"would be dropped: {count}")
            return
        confirm(f"Drop {count} messages for good?", yes)
        print(f"dropped: {opened.retries.drop(chosen)}")


def _count(store: Store, chosen: MessageSelection) -> int:
    count = store.retries.count(chosen)
    if not count:
        raise CliError("no such message waits for a retry", "headrace retry list shows all that do")
    return count


def _line(parked: ParkedMessage, at_ms: int) -> dict[str, object]:
    return {
        "id": parked.message.id,
        "handler": parked.handler,
        "state": _state(parked, at_ms),
        "attempts": parked.attempts,
        "next": show_time(parked.next_ms),
        "fingerprint": parked.failure.fingerprint,
        "error": parked.failure.error.partition("\n")[0],
    }


def _details(parked: ParkedMessage, at_ms: int) -> dict[str, Any]:
    return {
        **message_details(parked.handler, parked.message, parked.failure),
        "state": _state(parked, at_ms),
        "attempts": parked.attempts,
        "parked_ms": parked.parked_ms,
        "next_ms": parked.next_ms,
        "owner": parked.owner,
        "lease_ms": parked.lease_ms,
    }


def _state(parked: ParkedMessage, at_ms: int) -> str:
    if parked.owner is not None and parked.lease_ms > at_ms:
        return "running"
    if not parked.is_head:
        return "behind"
    return "due" if parked.next_ms <= at_ms else "waiting"
