"""The options that the verbs of `headrace pipeline` share, as typer reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.parsing import parse_pairs
from headrace.cli.pipeline.loading import pipeline_errors
from headrace.config import environment

if TYPE_CHECKING:
    from headrace.spark.pipelines.launcher import LaunchSettings
    from headrace.spark.pipelines.pacing import Window


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


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """The options of every verb that runs a pipeline."""

    master: MasterOption = None
    conf: ConfOption = None
    connector: ConnectorOption = "headrace"
    checkpoints: CheckpointsOption = None
    repin: RepinOption = False
    home: HomeOption

    def settings(
        self,
        kafka: KafkaOptions,
        *,
        rate: float | None,
        to_end: bool,
        window: Window | None = None,
        is_replay: bool = False,
    ) -> LaunchSettings:
        """How the pipeline is run."""
        with pipeline_errors():
            from headrace.spark.pipelines.launcher import LaunchSettings
        return LaunchSettings(
            bootstrap=kafka.bootstrap,
            root=self.home,
            client=parse_pairs(kafka.properties, "-X"),
            master=self.master,
            spark=parse_pairs(self.conf, "--conf"),
            connector=self.connector,
            checkpoints=self.checkpoints,
            repin=self.repin,
            to_end=to_end,
            records_per_s=rate,
            window=window,
            is_replay=is_replay,
        )
