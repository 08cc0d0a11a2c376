"""`headrace dlq`: list, show, replay and discard dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions, check_reachable
from headrace.cli.common.errors import CliError
from headrace.cli.common.messages import (
    HandlerOption,
    MessageChoice,
    MessageFilter,
    message_details,
)
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import LimitOption, MessageArgument, YesOption, confirm
from headrace.cli.common.output import Output, OutputOption, show_all, show_json, show_rows
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store import Store
    from headrace.store.dead_letters import Letter, LetterGroup
    from headrace.store.failed_messages import MessageSelection

app = typer.Typer(help="List, show, replay and discard dead letters.", no_args_is_help=True)

COLUMNS = ("id", "handler", "source", "attempts", "failed", "fingerprint", "error")
GROUP_COLUMNS = ("fingerprint", "letters", "handler", "topic", "first", "last", "place", "error")
DRY_RUN_LISTED = 20


@app.command("list")
@with_groups
def list_letters(
    *,
    filter: MessageFilter,
    groups: Annotated[
        bool, typer.Option("--groups", "-g", help="One line for each kind of failure.")
    ] = False,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Also those that were replayed.")
    ] = False,
    limit: LimitOption = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List dead letters, oldest first."""
    with open_cli_store(store) as opened:
        if groups:
            found = opened.dead_letters.groups(filter.chosen())
            show_rows([_group_line(group) for group in found], GROUP_COLUMNS, output)
            return
        letters = opened.dead_letters.find(filter.chosen(), with_replayed=replayed, limit=limit)
    show_all(letters, COLUMNS, output, row=_line, details=_details)


@app.command()
def show(
    id: MessageArgument,
    *,
    handler: HandlerOption = None,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """Show a dead letter with its payload, headers and traceback."""
    chosen = MessageFilter(handler=handler).chosen([id])
    with open_cli_store(store) as opened:
        letters = opened.dead_letters.find(chosen, with_replayed=True)
    if not letters:
        raise CliError(f"there is no dead letter with id {id!r}", "headrace dlq list shows the ids")
    if output is Output.json:
        show_json([_details(letter) for letter in letters])
        return
    for letter in letters:
        details = _details(letter)
        trace = details.pop("traceback")
        width = max(map(len, details))
        for name, value in details.items():
            print(f"{name.ljust(width)}  {'-' if value is None else value}")
        print(f"\n{trace}")


@app.command()
@with_groups
def replay(
    *, choice: MessageChoice, yes: YesOption = False, kafka: KafkaOptions, store: StoreOption
) -> None:
    """Send dead letters to the end of the topics they came from, with the same ids."""
    from headrace.handlers.dead_letters import replay as send_back

    chosen = choice.required()
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if choice.dry_run:
            _show_dry_run(opened, chosen, f"would be sent again: {count}")
            return
        confirm(f"Send {count} messages again?", yes)
        check_reachable(kafka.bootstrap)
        with kafka.errors():
            from headrace.client.producer import Producer
            from headrace.large.large import Large

            large = Large()
            with Producer(kafka.given(), large=large) as producer:
                sent = sum(map(len, send_back(opened, producer, chosen, large)))
    print(f"sent again: {sent}")


@app.command()
@with_groups
def discard(*, choice: MessageChoice, yes: YesOption = False, store: StoreOption) -> None:
    """Delete dead letters from the index, also replayed ones; the records in their topic stay."""
    chosen = choice.required()
    with open_cli_store(store) as opened:
        count = _count(opened, chosen, with_replayed=True)
        if choice.dry_run:
            _show_dry_run(opened, chosen, f"would be discarded: {count}", with_replayed=True)
            return
        confirm(f"Discard {count} dead letters for good?", yes)
        print(f"discarded: {opened.dead_letters.discard(chosen)}")


def _count(store: Store, chosen: MessageSelection, *, with_replayed: bool = False) -> int:
    count = store.dead_letters.count(chosen, with_replayed=with_replayed)
    if not count:
        raise CliError("there is no such dead letter", "headrace dlq list shows the dead letters")
    return count


def _show_dry_run(
    store: Store, chosen: MessageSelection, summary: str, *, with_replayed: bool = False
) -> None:
    letters = store.dead_letters.find(chosen, with_replayed=with_replayed, limit=DRY_RUN_LISTED)
    show_rows([_line(letter) for letter in letters], COLUMNS, Output.table)
    print(summary)


def _line(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.message.id,
        "handler": letter.handler,
        "source": letter.message.source,
        "attempts": letter.attempts,
        "failed": show_time(letter.failed_ms),
        "fingerprint": letter.failure.fingerprint,
        "error": letter.failure.error.partition("\n")[0],
    }


def _group_line(group: LetterGroup) -> dict[str, object]:
    return {
        "fingerprint": group.fingerprint,
        "letters": group.count,
        "handler": group.handler,
        "topic": group.topic,
        "first": show_time(group.first_ms),
        "last": show_time(group.last_ms),
        "place": group.place,
        "error": group.error.partition("\n")[0],
    }


def _details(letter: Letter) -> dict[str, Any]:
    return {
        **message_details(letter.handler, letter.message, letter.failure),
        "attempts": letter.attempts,
        "version": letter.version,
        "state": letter.state,
        "failed_ms": letter.failed_ms,
        "replays": letter.replays,
    }
