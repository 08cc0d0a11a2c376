"""`headrace log`: show what is in the files of a partition, and check them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, Row, quiet_pipe, show_rows

app = typer.Typer(
    help="Read and check the files of a broker; changes nothing.", no_args_is_help=True
)

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A file, a partition's folder or a data folder.", show_default=False
    ),
]


class Decode(StrEnum):
    """Internal topics whose records can be decoded."""

    offsets = "offsets"
    transactions = "transactions"


@app.command()
def dump(
    path: PathArgument,
    *,
    deep: Annotated[
        bool, typer.Option("--deep", help="Show the records of every batch, too.")
    ] = False,
    decode: Annotated[
        Decode | None,
        typer.Option(help="Show the records of __consumer_offsets or __transaction_state."),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Print every batch, index entry and checkpoint, one line each."""
    from headrace.storage.dump import dump as read_rows

    _check_there(path)
    rows = read_rows(str(path), deep=deep, decode=decode.value if decode else None)
    with quiet_pipe():
        if output is Output.json:
            _stream_json(rows)
        else:
            _stream_text(rows)


@app.command()
def verify(path: PathArgument, *, output: OutputOption = Output.table) -> None:
    """Check every file and whether they agree; the exit code is 1 if something is damaged."""
    from headrace.storage.verify import Severity, holds_logs
    from headrace.storage.verify import verify as find

    _check_there(path)
    if not path.is_dir():
        raise CliError(f"{path} is not a folder", "name a partition's folder or a data folder")
    if not holds_logs(str(path)):
        raise CliError(
            f"{path} holds no log, so there is nothing to verify",
            "name a partition's folder or a data folder of a broker",
        )
    findings = list(find(str(path)))
    if findings or output is Output.json:
        columns = ("severity", "file", "position", "problem")
        show_rows([finding._asdict() for finding in findings], columns, output)
    else:
        print(f"{path}: sound")
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(1)


def _check_there(path: Path) -> None:
    if not path.exists():
        raise CliError(
            f"{path} does not exist", "name a file, a partition's folder or a data folder"
        )


def _stream_json(rows: Iterable[Row]) -> None:
    # One array, written as it is read: a log may be larger than memory.
    opening = "["
    for row in rows:
        sys.stdout.write(f"{opening}\n  {json.dumps(row, ensure_ascii=False)}")
        opening = ","
    sys.stdout.write("[]\n" if opening == "[" else "\n]\n")


def _stream_text(rows: Iterable[Row]) -> None:
    file = None
    for row in rows:
        if row["file"] != file:
            file = row["file"]
            print(file)
        fields = (
            f"{name}={value}"
            for name, value in row.items()
            if name not in ("file", "type") and value is not None
        )
        indent = "    " if row["type"] == "record" else "  "
        print(f"{indent}{row['type']}", *fields)
