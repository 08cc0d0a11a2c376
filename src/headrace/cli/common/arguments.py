"""Arguments that several verbs have."""

from __future__ import annotations

from typing import Annotated

import typer

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
