"""Listings: a table for people, aligned text for pipes, JSON for programs."""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

Row = Mapping[str, object]
T = TypeVar("T")


class Output(StrEnum):
    """How a listing is printed."""

    table = "table"
    json = "json"


OutputOption = Annotated[
    Output, typer.Option("--output", "-o", help="How to print: a table, or JSON for programs.")
]


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: Output) -> None:
    """Print rows that all have these columns."""
    if output is Output.json:
        show_json([{column: row[column] for column in columns} for row in rows])
    elif sys.stdout.isatty():
        _show_rich(rows, columns)
    else:
        _show_plain(rows, columns)


def show_json(value: object) -> None:
    """Print one JSON document."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def show_all(
    found: Sequence[T],
    columns: Sequence[str],
    output: Output,
    *,
    row: Callable[[T], Row],
    details: Callable[[T], Row],
) -> None:
    """Print things as a table of their rows, or as JSON with all their details."""
    if output is Output.json:
        show_json([details(one) for one in found])
    else:
        show_rows([row(one) for one in found], columns, output)


def show_each(details: Sequence[T], output: Output, show: Callable[[T], None]) -> None:
    """Print things one below the other with an empty line between, or all as JSON."""
    if output is Output.json:
        show_json(details)
        return
    for index, detail in enumerate(details):
        if index:
            print()
        show(detail)


def as_text(value: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text where they are UTF-8, else marked as base64."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def headers_text(headers: Iterable[tuple[str, bytes | None]]) -> list[list[object]]:
    """Headers for JSON, as pairs in their order."""
    return [[name, as_text(value)] for name, value in headers]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _show_rich(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        is_number = bool(rows) and all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    Console(markup=False, highlight=False).print(table)


def _show_plain(rows: Sequence[Row], columns: Sequence[str]) -> None:
    lines = [list(columns), *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End quietly when the reader closes the pipe, as `| head` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes standard output again at exit, and nothing reads it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
