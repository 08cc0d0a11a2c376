"""Arguments and options that several verbs have, and the question before a change."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
MessageArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of a message.")]
PartitionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC[:PARTITIONS]",
        help="Only this topic, or partitions of it as in orders:0,2-4; may be repeated.",
    ),
]
LimitOption = Annotated[int, typer.Option(min=1, help="List at most this many.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", "-n", help="Show what would be done, without doing it.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Ask a person at a terminal; a script is not asked."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(question, abort=True)
