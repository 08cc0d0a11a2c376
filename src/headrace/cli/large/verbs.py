"""`headrace large`: the bodies of large messages that were sent by claim check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.options import DryRunOption
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.cli.common.parsing import now_ms, parse_duration_ms
from headrace.cli.common.stores import StoreOption, open_cli_store
from headrace.client.times import show_time
from headrace.config import environment

if TYPE_CHECKING:
    from headrace.large.body_store import BodyStore
    from headrace.large.garbage import Collected

app = typer.Typer(
    help="List the bodies of large messages, and remove unneeded ones.", no_args_is_help=True
)

COLUMNS = ("cluster", "topic", "bodies", "bytes", "oldest", "newest")

ClaimsOption = Annotated[
    str,
    typer.Option(
        "--claims",
        metavar="URL",
        help="Where bodies are stored: a folder, an fsspec URL, or a database URL.",
        default_factory=environment.large_url,
        show_default="HEADRACE_LARGE, or `large` in the data folder",
    ),
]


@app.command("list")
def list_bodies(*, claims: ClaimsOption, output: OutputOption = Output.table) -> None:
    """Count the stored bodies by cluster and topic."""
    by_topic: dict[tuple[str, str], list[Any]] = {}
    with _open(claims) as opened:
        for stored in opened.list():
            by_topic.setdefault((stored.cluster, stored.topic), []).append(stored)
    rows = [
        {
            "cluster": cluster,
            "topic": topic,
            "bodies": len(found),
            "bytes": sum(stored.body_bytes for stored in found),
            "oldest": show_time(min(stored.since_ms for stored in found)),
            "newest": show_time(max(stored.since_ms for stored in found)),
        }
        for (cluster, topic), found in sorted(by_topic.items())
    ]
    show_rows(rows, COLUMNS, output)


@app.command()
@with_groups
def gc(
    *,
    claims: ClaimsOption,
    grace: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Keep bodies this long after their records."),
    ] = "1d",
    scan: Annotated[
        bool,
        typer.Option(
            "--scan",
            help="Read compacted topics and those kept forever, to find the bodies in use.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    kafka: KafkaOptions,
    store: StoreOption,
) -> None:
    """Remove bodies whose records are gone from this cluster.

    With a store, also those of messages stored there.
    """
    from headrace.errors import Unavailable
    from headrace.large.garbage import find_garbage
    from headrace.large.topic_reader import claimed_names
    from headrace.large.topic_settings import TopicSettingsCache

    grace_ms = parse_duration_ms(grace, "--grace")
    at_ms = now_ms()
    config = kafka.config()
    settings_of = TopicSettingsCache(config)
    with _open(claims) as opened, kafka.errors():
        try:
            found = find_garbage(
                opened,
                settings_of.cluster,
                settings_of,
                at_ms,
                grace_ms,
                (lambda topic: claimed_names(config, topic)) if scan else None,
            )
        except Unavailable as problem:
            raise CliError(str(problem)) from None
        _finish(opened, found, dry_run)
    if found.timeless and not scan:
        topics = ", ".join(sorted(found.timeless))
        print(f"kept forever or by key, so not examined (use --scan): {topics}")
    if store:
        _collect_kept(store, at_ms, grace_ms, dry_run)


def _collect_kept(store: str, at_ms: int, grace_ms: int, dry_run: bool) -> None:
    from headrace.large.garbage import find_unneeded, needed_by
    from headrace.large.rows import row_bodies

    with open_cli_store(store) as opened:
        kept = row_bodies(opened)
        found = find_unneeded(kept, at_ms, grace_ms, needed_by(opened))
        _finish(kept, found, dry_run, " of the store")


def _finish(claims: BodyStore, found: Collected, dry_run: bool, where: str = "") -> None:
    if not dry_run:
        claims.delete(stored.name for stored in found.garbage)
    done = "would remove" if dry_run else "removed"
    print(f"{done} {len(found.garbage)} bodies{where}, {found.body_bytes} bytes; kept {found.kept}")


@contextmanager
def _open(url: str) -> Iterator[BodyStore]:
    """The bodies at a URL; CliError if they cannot be reached."""
    from headrace.large.body_store import open_body_store
    from headrace.large.errors import BodyStoreUnavailable

    try:
        claims = open_body_store(url)
    except ModuleNotFoundError as missing:
        raise CliError(str(missing)) from None
    try:
        yield claims
    except BodyStoreUnavailable as away:
        raise CliError(str(away)) from None
    finally:
        claims.close()
