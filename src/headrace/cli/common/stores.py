"""Reaching a store: the option of every verb that reads one, and what the verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.parsing import now_ms, parse_duration_ms
from headrace.config import environment

if TYPE_CHECKING:
    from headrace.store import Store

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="URL",
        help="The handlers' database: sqlite:///FILE or postgresql://USER@HOST/NAME.",
        default_factory=environment.store_url,
        show_default="HEADRACE_STORE",
    ),
]


OlderThanOption = Annotated[
    str, typer.Option(metavar="DURATION", help="Only what was finished longer ago.")
]


@contextmanager
def open_cli_store(url: str | None, *, create: bool = False) -> Iterator[Store]:
    """The store at this URL; CliError if there is none, unless it is to be created."""
    if not url:
        raise CliError(
            "no store is given", "--store sqlite:///shop.db, or set HEADRACE_STORE", exit_code=2
        )
    try:
        from headrace.store import open_store

        store = open_store(url)
    except ModuleNotFoundError as missing:
        raise CliError(str(missing)) from None
    with closing(store):
        if create:
            store.create()
        elif not store.exists():
            # A mistyped name must not leave an empty database behind.
            raise CliError(
                f"there is no store at {url}",
                "the first run of its app, or headrace outbox relay, creates the tables",
            )
        yield store


def remove_older(older_than: str, remove: Callable[[int], int]) -> int:
    """Remove what is older, by batches until nothing is left; returns how much was removed."""
    before_ms = now_ms() - parse_duration_ms(older_than, "--older-than")
    return sum(iter(lambda: remove(before_ms), 0))
