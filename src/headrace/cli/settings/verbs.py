"""`headrace settings`: every broker and topic setting with its default and meaning."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli.common.errors import CliError
from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.config import BROKER_ROWS, TOPIC_ROWS, Setting
from headrace.config.kinds import text_of


class Of(StrEnum):
    """Whose settings."""

    broker = "broker"
    topic = "topic"


def settings(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="Only names with this text.", show_default=False),
    ] = None,
    *,
    of: Annotated[Of, typer.Option(help="Settings of the broker or of a topic.")] = Of.broker,
    output: OutputOption = Output.table,
) -> None:
    """List the settings: name, default, unit and what each does."""
    rows = BROKER_ROWS if of is Of.broker else TOPIC_ROWS
    chosen = [_row(row) for row in rows if name is None or name in row.name]
    if not chosen:
        raise CliError(
            f"no {of} setting has {name!r} in its name", f"headrace settings --of {of} lists them"
        )
    columns: tuple[str, ...] = ("name", "default", "unit", "meaning")
    if output is Output.json:
        columns = ("name", "type", "default", "unit", "scope", "kafka_default", "meaning")
    show_rows(chosen, columns, output)


def _row(row: Setting) -> dict[str, object]:
    meaning = f"{row.doc} No effect yet: {row.inert}" if row.inert else row.doc
    return {
        "name": row.name,
        "type": row.kind.name.lower(),
        "default": text_of(row.default),
        "unit": row.unit,
        "scope": row.scope.value,
        "kafka_default": row.kafka_default,
        "meaning": meaning,
    }
