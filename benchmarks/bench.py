"""One bench: both brokers in turn under the same loads, then a table, JSON, or the docs page."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import generator, machine, report
from benchmarks.asking import ROOT, BenchFailed
from benchmarks.figures import Figure, Row, compare, doubts
from benchmarks.peers import Headrace, Kafka, Peer
from benchmarks.trial import FULL, QUICK, Trial

_DESCRIPTORS = 16_384
_TABLE_COLUMNS = 130  # where standard output is not a terminal
_DISK_BYTES_NEEDED = 12_000_000_000


@dataclass(frozen=True)
class Bench:
    """A list of figures and the trial that measures them."""

    name: str
    figures: tuple[Figure, ...]
    # What `--only` chooses: each is one load or one thing that is done.
    parts: tuple[str, ...]
    trial: type[Trial]
    # Pairs of figures that should agree on Apache Kafka, when it is warm and the machine quiet.
    controls: tuple[tuple[str, str], ...] = ()

    @property
    def plot(self) -> Path:
        """Where the docs have its plot."""
        return ROOT / "docs" / "img" / f"bench-{self.name}.svg"

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options of the bench."""
        parser = argparse.ArgumentParser(
            prog=f"headrace bench {self.name}",
            description="Run Apache Kafka and Headrace one after the other under the same load.",
        )
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        parser.add_argument(
            "--quick", action="store_true", help="one short round, for a first look"
        )
        parser.add_argument("--rounds", type=int, help="interleaved rounds, the median counts (3)")
        parser.add_argument(
            "--only",
            action="append",
            choices=self.parts,
            metavar="NAME",
            help=f"measure only this; may be repeated: {', '.join(self.parts)}",
        )
        parser.add_argument("--peer", choices=["both", "kafka", "headrace"], default="both")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a broker setting for Headrace, to see what it costs",
        )
        parser.add_argument(
            "--dir", type=Path, help="where the brokers' data goes (a cache folder)"
        )
        parser.add_argument(
            "--write-docs", action="store_true", help="put the figures and the plot into docs/"
        )
        options = parser.parse_args(arguments)
        if options.rounds is None:
            options.rounds = 1 if options.quick else 3
        if options.rounds < 1:
            parser.error("--rounds begins at 1")
        partial = options.quick or options.only or options.peer != "both" or options.set
        if options.write_docs and partial:
            parser.error("--write-docs needs a full run: every figure of both brokers at defaults")
        return options

    def run(
        self, options: argparse.Namespace, progress: Console
    ) -> tuple[list[Row], dict[str, Any]]:
        """Measure what the options ask for; returns the rows and the whole document."""
        program = generator.build()
        machine.raise_descriptor_limit(_DESCRIPTORS)
        parent = options.dir or generator.CACHE / "data"
        parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(parent).free < _DISK_BYTES_NEEDED:
            raise SystemExit(f"{parent} has less than 12 GB free; choose another folder with --dir")
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as temporary:
            folder = Path(temporary)
            facts = machine.facts(folder)
            for name, fact in facts.items():
                progress.print(f"[dim]{name}: {fact}", soft_wrap=True)
            kafka, headrace = Kafka(), Headrace(tuple(options.set))
            trials = {
                peer.name: self._trial(peer, program, folder, options, progress)
                for peer in (kafka, headrace)
                if options.peer in ("both", peer.name)
            }
            for number in range(1, options.rounds + 1):
                for name, trial in trials.items():
                    progress.log(f"round {number} of {options.rounds}, {name}")
                    trial.round()
        values = {name: trial.values for name, trial in trials.items()}
        peer_values = values.get("kafka", {})
        rows = compare(self.figures, values.get("headrace", {}), peer_values)
        details = {
            "versions": {"headrace": headrace.title, "kafka": kafka.title},
            "quick": options.quick,
            "doubts": doubts(peer_values, self.controls),
            "rounds": options.rounds,
            "values": values,
            "answers": {name: trial.answers for name, trial in trials.items()},
        }
        return rows, report.document(rows, facts, details)

    def _trial(
        self,
        peer: Peer,
        program: Path,
        folder: Path,
        options: argparse.Namespace,
        progress: Console,
    ) -> Trial:
        return self.trial(
            peer,
            program,
            folder / peer.name,
            QUICK if options.quick else FULL,
            options.only or self.parts,
            lambda what: progress.log(f"[dim]{peer.name}: {what}"),
        )

    def write_docs(self, rows: list[Row], result: dict[str, Any], command: str) -> None:
        """Put the figures into the docs page and draw the plot beside it."""
        titles = (result["versions"]["headrace"], result["versions"]["kafka"])
        generated = report.markdown(
            self.name, rows, result["machine"], titles, command, result["doubts"]
        )
        report.write_page(self.name, generated)
        report.plot(rows, self.plot, titles)

    def main(self, arguments: Sequence[str]) -> int:
        """Run the bench; 0 when it could be measured, whatever the figures say."""
        options = self.parse(arguments)
        progress = Console(stderr=True, log_path=False)
        try:
            rows, result = self.run(options, progress)
        except BenchFailed as error:
            progress.print(f"[red]error:[/] {error}", markup=True)
            return 1
        versions = result["versions"]
        shown = report.table(rows, versions["headrace"], versions["kafka"])
        report.show(result, shown, options.output, _TABLE_COLUMNS)
        for doubt in result["doubts"]:
            progress.print(f"[yellow]doubtful:[/] {doubt}", soft_wrap=True)
        if options.write_docs:
            self.write_docs(rows, result, " ".join([f"./headrace bench {self.name}", *arguments]))
        return 0
