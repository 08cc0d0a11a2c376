"""The options that `up` and `broker` share, as typer reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.broker.serving import ServeOptions


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """What a broker is started with; `quick.py` reads the same options without typer."""

    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address to listen on; port 0 takes a free one.",
            show_default="127.0.0.1:9092",
        ),
    ] = None
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the data; created if it is missing.",
            show_default="~/.local/share/headrace",
        ),
    ] = None
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings file with NAME=VALUE lines.")
    ] = None
    set: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A broker setting; may be repeated. `headrace settings` lists them.",
        ),
    ] = None
    allow_insecure_listen: Annotated[
        bool,
        typer.Option(
            "--allow-insecure-listen", help="Listen beyond loopback without authentication."
        ),
    ] = False

    def to_serve(self) -> ServeOptions:
        """The same without typer."""
        return ServeOptions(
            listen=self.listen,
            data_dir=self.data_dir,
            config=self.config,
            set=tuple(self.set or ()),
            allow_insecure_listen=self.allow_insecure_listen,
        )
