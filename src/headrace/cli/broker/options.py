"""The options that `up` and `broker` share, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ListenOption = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Address to listen on; port 0 takes a free one.",
        show_default="127.0.0.1:9092",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the data; made if it is missing.",
        show_default="~/.local/share/headrace",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file with NAME=VALUE lines."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A broker setting; may be repeated. `headrace settings` lists them.",
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--allow-insecure-listen",
        help="Listen beyond loopback although there is no authentication.",
    ),
]
