"""`headrace dlq`: dead letters, looked at, sent again or thrown away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.arguments import YesOption, confirm
from headrace.cli.common.connection import (
    BootstrapOption,
    PropertyOption,
    check_reachable,
    client_errors,
)
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
from headrace.cli.common.pairs import parse_pairs
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time

if TYPE_CHECKING:
    from headrace.store import Store
    from headrace.store.dead_letters import Letter, LetterGroup
    from headrace.store.failed_messages import Selection

app = typer.Typer(
    help="List dead letters, show one, send them again or throw them away.", no_args_is_help=True
)

COLUMNS = ("id", "handler", "source", "attempts", "failed", "fingerprint", "error")
GROUP_COLUMNS = ("fingerprint", "letters", "handler", "topic", "first", "last", "place", "error")
DRY_RUN_LISTED = 20


@app.command("list")
def list_letters(
    *,
    fingerprint: FingerprintOption = None,
    handler: HandlerOption = None,
    topic: TopicOption = None,
    groups: Annotated[
        bool, typer.Option("--groups", "-g", help="One line for each kind of failure.")
    ] = False,
    replayed: Annotated[
        bool, typer.Option("--replayed", help="Those that were sent again, too.")
    ] = False,
    limit: LimitOption = 100,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """List dead letters, oldest first."""
    from headrace.store.failed_messages import Selection

    chosen = Selection((), fingerprint, handler, topic)
    with open_cli_store(store) as opened:
        if groups:
            found = opened.dead_letters.groups(chosen)
            show_rows([_group_line(group) for group in found], GROUP_COLUMNS, output)
            return
        letters = opened.dead_letters.find(chosen, with_replayed=replayed, limit=limit)
    if output is Output.json:
        show_json([_details(letter) for letter in letters])
    else:
        show_rows([_line(letter) for letter in letters], COLUMNS, output)


@app.command()
def show(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")],
    *,
    handler: HandlerOption = None,
    store: StoreOption,
    output: OutputOption = Output.table,
) -> None:
    """Show a dead letter with its payload, headers and traceback."""
    from headrace.store.failed_messages import Selection

    with open_cli_store(store) as opened:
        letters = opened.dead_letters.find(Selection((id,), handler=handler), with_replayed=True)
    if not letters:
        raise CliError(f"no dead letter has the id {id}", "headrace dlq list shows those there are")
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
def replay(
    ids: IdsArgument = None,
    *,
    fingerprint: FingerprintOption = None,
    handler: HandlerOption = None,
    topic: TopicOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
    store: StoreOption,
) -> None:
    """Send dead letters to the end of the topics they came from, with their ids."""
    from headrace.handlers.dead_letters import replay as send_back

    chosen = choose(ids, fingerprint, handler, topic, everything)
    with open_cli_store(store) as opened:
        count = _count(opened, chosen)
        if dry_run:
            _show_dry_run(opened, chosen, f"would be sent again: {count}")
            return
        confirm(f"Send {count} messages again?", yes)
        check_reachable(bootstrap)
        with client_errors(bootstrap):
            from headrace.client.producer import Producer
            from headrace.large.large import Large

            settings = {"bootstrap.servers": bootstrap, **parse_pairs(properties, "-X")}
            large = Large()
            with Producer(settings, large=large) as producer:
                sent = sum(map(len, send_back(opened, producer, chosen, large)))
    print(f"sent again: {sent}")


@app.command()
def discard(
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
    """Forget dead letters, replayed ones too; the records in their topic stay."""
    chosen = choose(ids, fingerprint, handler, topic, everything)
    with open_cli_store(store) as opened:
        count = _count(opened, chosen, with_replayed=True)
        if dry_run:
            _show_dry_run(opened, chosen, f"would be discarded: {count}", with_replayed=True)
            return
        confirm(f"Discard {count} dead letters for good?", yes)
        print(f"discarded: {opened.dead_letters.discard(chosen)}")


def _count(store: Store, chosen: Selection, *, with_replayed: bool = False) -> int:
    count = store.dead_letters.count(chosen, with_replayed=with_replayed)
    if not count:
        raise CliError("there is no such dead letter", "headrace dlq list shows those there are")
    return count


def _show_dry_run(
    store: Store, chosen: Selection, summary: str, *, with_replayed: bool = False
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
