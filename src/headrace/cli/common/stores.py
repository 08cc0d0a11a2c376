"""Reaching a store: the option of every verb that looks into one, and its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.errors import CliError
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


@contextmanager
def open_cli_store(url: str | None, *, create: bool = False) -> Iterator[Store]:
    """The store at this URL, with its errors as errors of the command."""
    if not url:
        raise CliError(
            "no store is given", "--store sqlite:///shop.db, or set HEADRACE_STORE", exit_code=2
        )
    try:
        from headrace.store import StoreError, open_store
    except ModuleNotFoundError as missing:
        raise CliError(str(missing)) from None
    try:
        store = open_store(url)
        if create:
            store.create()
        else:
            _check(store, url)
    except StoreError as error:
        raise CliError(error.message, error.hint) from None
    except ModuleNotFoundError as missing:
        raise CliError(str(missing)) from None
    try:
        yield store
    except StoreError as error:
        raise CliError(error.message, error.hint) from None
    finally:
        store.close()


def _check(store: Store, url: str) -> None:
    """A look must not leave an empty database behind where somebody has mistyped its name."""
    if not store.exists():
        raise CliError(
            f"there is no store at {url}",
            "the first run of its app, or headrace outbox relay, makes the tables",
        )
