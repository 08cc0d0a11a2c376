"""The options that the verbs of `headrace pipeline` share, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headrace.config import environment


def default_home() -> Path:
    """Where pipelines keep their state by default."""
    return environment.data_dir() / "pipelines"


TargetArgument = Annotated[
    str, typer.Argument(help="Where the pipeline is defined.", metavar="MODULE:NAME")
]
HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Folder of the pipelines' states and checkpoints.",
        default_factory=default_home,
        show_default="~/.local/share/headrace/pipelines",
    ),
]
RateOption = Annotated[
    float | None, typer.Option("--rate", help="Read each source at most this fast, in records/s.")
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", help="A Spark master's URL.", show_default="all local cores"),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A Spark setting; may be repeated.", metavar="NAME=VALUE"),
]
ConnectorOption = Annotated[
    str,
    typer.Option(
        "--connector",
        help="headrace, or kafka for Spark's own, whose topic sink may double rows.",
    ),
]
CheckpointsOption = Annotated[
    str | None,
    typer.Option(
        "--checkpoints",
        metavar="DIR|URL",
        help="Where checkpoints are kept: a folder or any Hadoop URL.",
        show_default="in --home",
    ),
]
RepinOption = Annotated[
    bool,
    typer.Option("--repin", help="Accept a changed plan, if no batch is half written."),
]
OldOption = Annotated[
    int | None, typer.Option("--old", help="The old version.", show_default="the live one")
]
NewOption = Annotated[
    int | None, typer.Option("--new", help="The new version.", show_default="the one in the code")
]
