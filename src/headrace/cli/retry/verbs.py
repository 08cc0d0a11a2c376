"""`headrace retry`: the messages that wait for another try."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.common.arguments import YesOption, confirm
from headrace.cli.common.errors import CliError
from headrace.cli.common.failed import (
    AllOption,
    DryRunOption,
    FingerprintOption,
    HandlerOption,
    IdsArgument,
    LimitOption,
    TopicOption,
    choose,
    message_details,
)
from headrace.cli.common.output import Output, OutputOption, show_json, show_rows
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store import Store
    from headrace.store.failed_messages import Selection
    from headrace.store.retries import ParkedMessage

app = typer.Typer(
    help="List messages that wait for another try, hurry them or drop them.", no_args_is_help=True
)

COLUMNS = ("id", "handler", "state", "attempts", "next", "fingerprint", "error")


@app.command("list")
def list_messages(
    ids: IdsArgument = None,
    *,
    fingerprint: FingerprintOption = None,
    handler: HandlerOption = None,
    topic: TopicOption = None,
    limit: LimitOption = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List parked messages, the next one first; JSON shows payload and traceback too."""
    from headrace.store.failed_messages import Selection

    chosen = Selection(tuple(ids or ()), fingerprint, handler, topic)
    with open_cli_store(store) as opened:
        found = opened.retries.find(chosen, limit)
    now_ms = _now_ms()
    if output is Output.json:
        show_json([_details(parked, now_ms) for parked in found])
    else:
        show_rows([_line(parked, now_ms) for parked in found], COLUMNS, output)


@app.command()
def now(
    ids: IdsArgument = None,
    *,
    fingerprint: FingerprintOption = None,
    handler: HandlerOption = None,
    topic: TopicOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    store: StoreOption,
) -> None:
    """Try messages at once; one that stands behind another of its key still waits for it."""
    chosen = choose(ids, fingerprint, handler, topic, everything)
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if dry_run:
            print(f"would be tried now: {count}")
            return
        opened.retries.make_due(chosen, _now_ms())
    print(f"due now: {count}")


@app.command()
def drop(
    ids: IdsArgument = None,
    *,
    fingerprint: FingerprintOption = None,
    handler: HandlerOption = None,
    topic: TopicOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    store: StoreOption,
) -> None:
    """Forget messages: they are neither tried again nor dead letters."""
    chosen = choose(ids, fingerprint, handler, topic, everything)
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if dry_run:
            print(f"would be dropped: {count}")
            return
        confirm(f"Drop {count} messages for good?", yes)
        print(f"dropped: {opened.retries.drop(chosen)}")


def _count(store: Store, chosen: Selection) -> int:
    count = store.retries.count(chosen)
    if not count:
        raise CliError("no such message waits", "headrace retry list shows what does")
    return count


def _line(parked: ParkedMessage, now_ms: int) -> dict[str, object]:
    return {
        "id": parked.message.id,
        "handler": parked.handler,
        "state": _state(parked, now_ms),
        "attempts": parked.attempts,
        "next": show_time(parked.next_ms),
        "fingerprint": parked.failure.fingerprint,
        "error": parked.failure.error.partition("\n")[0],
    }


def _details(parked: ParkedMessage, now_ms: int) -> dict[str, Any]:
    return {
        **message_details(parked.handler, parked.message, parked.failure),
        "state": _state(parked, now_ms),
        "attempts": parked.attempts,
        "parked_ms": parked.parked_ms,
        "next_ms": parked.next_ms,
        "owner": parked.owner,
        "lease_ms": parked.lease_ms,
    }


def _state(parked: ParkedMessage, now_ms: int) -> str:
    if parked.owner is not None and parked.lease_ms > now_ms:
        return "running"
    if not parked.is_head:
        return "behind"
    return "due" if parked.next_ms <= now_ms else "waiting"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
