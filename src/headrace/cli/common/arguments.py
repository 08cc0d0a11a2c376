"""Arguments and options that several verbs have, and the question before a change."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, yes: bool) -> None:
    """Ask a person at a terminal; a script is taken at its word."""
    if sys.stdin.isatty() and not yes:
        typer.confirm(question, abort=True)
