"""A bench whose figures stand in columns, one for each rival: its options, its table, its docs."""

from __future__ import annotations

import argparse
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table

from benchmarks import generator, machine, report
from benchmarks.asking import ROOT, BenchFailed
from benchmarks.figures import Figure, Row
from headrace.cli.common.version import version

OWN = "headrace"

_TABLE_COLUMNS = 150  # where standard output is not a terminal

Result = dict[str, Any]
Values = dict[str, float]


class ColumnsBench(ABC):
    """Runs the rivals one after the other; a subclass says which, and how one is measured."""

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    picture: ClassVar[str]
    columns: ClassVar[Mapping[str, str]]
    figures: ClassVar[Sequence[Figure]]

    def __init__(self) -> None:
        self.values: dict[str, Values] = {column: {} for column in self.columns}
        self.details: dict[str, Any] = {}
        self.left_out: dict[str, str] = {}

    @abstractmethod
    def measure(self, column: str, folder: Path, quick: bool, progress: Console) -> None:
        """Measure one rival into `values`."""

    @abstractmethod
    def draw(self, rows: Mapping[str, Mapping[str, float | None]], axes: Any) -> None:
        """Draw the bench's picture from the values by figure and column."""

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options of the bench."""
        parser = argparse.ArgumentParser(
            prog=f"headrace bench {self.name}", description=self.description
        )
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        parser.add_argument("--quick", action="store_true", help="a short look")
        parser.add_argument(
            "--only", action="append", choices=list(self.columns), help="only this; may be repeated"
        )
        parser.add_argument("--dir", type=Path, help="where the data goes (a cache folder)")
        parser.add_argument(
            "--write-docs", action="store_true", help="put the figures and the plot into docs/"
        )
        options = parser.parse_args(arguments)
        if options.write_docs and (options.quick or options.only):
            parser.error("--write-docs needs a full run")
        return options

    def run(self, options: argparse.Namespace, progress: Console) -> Result:
        """Measure what the options ask for; the whole document."""
        parent = options.dir or generator.CACHE / "data"
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as temporary:
            folder = Path(temporary)
            facts = machine.facts(folder)
            for column in options.only or self.columns:
                progress.log(self.columns[column])
                own = folder / column
                own.mkdir()
                self.measure(column, own, options.quick, progress)
                shown = {name: round(value, 2) for name, value in self.values[column].items()}
                progress.log(f"[dim]{shown}")
        return self.result(facts, quick=options.quick)

    def result(self, facts: machine.Facts, *, quick: bool = False) -> Result:
        """What was measured, for programs."""
        return {
            "machine": facts,
            "figures": [self._row(figure) for figure in self.figures],
            "quick": quick,
            "left_out": self.left_out,
            **self.details,
        }

    def table(self, result: Result) -> Table:
        """The figures for a terminal."""
        out = Table(title=self.title, title_justify="left")
        for name in self._head():
            out.add_column(name, no_wrap=True)
        for row in result["figures"]:
            out.add_row(*self._cells(row))
        return out

    def markdown(self, result: Result, command: str) -> str:
        """The bench's generated part of the docs page."""
        facts = result["machine"]
        measured = f"Measured on {facts['date']} by `{command}`: Headrace {version()}."
        lines = [
            f"{measured} {self.note()}".strip(),
            "",
            f"![{self.picture}](img/bench-{self.name}.svg)",
            "",
            f"| {' | '.join(self._head())} |",
            f"|---|---|{'---:|' * (len(self.columns) + 1)}---|",
        ]
        for row in result["figures"]:
            title, *rest = self._cells(row)
            shown = f"&nbsp;&nbsp;{title.strip()}" if title.startswith(" ") else title
            lines.append(f"| {' | '.join([shown, *rest])} |")
        lines += [
            f"\n**Left out:** {self.columns[rival]}: {why}."
            for rival, why in result["left_out"].items()
        ]
        lines += ["", "| machine | |", "|---|---|"]
        lines += [f"| {fact} | {value} |" for fact, value in facts.items() if fact != "date"]
        return "\n".join(lines) + "\n"

    def note(self) -> str:
        """A sentence for the docs about this run."""
        return ""

    def plot(self, result: Result, path: Path) -> None:
        """The bench's picture for the docs."""
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams["svg.hashsalt"] = "headrace"  # the same figures give the same file
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(self.columns) + 1.2))
        self.draw({row["name"]: row["values"] for row in result["figures"]}, axes)
        axes.legend(fontsize=8)
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)

    def main(self, arguments: Sequence[str]) -> int:
        """Run the bench; 0 when it could be measured, whatever the figures say."""
        options = self.parse(arguments)
        progress = Console(stderr=True, log_path=False)
        try:
            result = self.run(options, progress)
        except BenchFailed as error:
            progress.print(f"[red]error:[/] {error}", soft_wrap=True)
            return 1
        report.show(result, self.table(result), options.output, _TABLE_COLUMNS)
        for column, why in self.left_out.items():
            progress.print(f"[yellow]left out:[/] {self.columns[column]}: {why}", soft_wrap=True)
        if options.write_docs:
            generated = self.markdown(
                result, " ".join([f"./headrace bench {self.name}", *arguments])
            )
            report.write_page(self.name, generated)
            self.plot(result, ROOT / "docs" / "img" / f"bench-{self.name}.svg")
        return 0

    def _head(self) -> list[str]:
        return ["load", "unit", *self.columns.values(), "target", "reached"]

    def _row(self, figure: Figure) -> dict[str, Any]:
        values = {column: found.get(figure.name) for column, found in self.values.items()}
        return {
            "name": figure.name,
            "title": figure.title,
            "unit": figure.unit,
            "values": values,
            "target": report.target_text(figure) or None,
            "reached": Row(figure, values[OWN], None).reached,
        }

    def _cells(self, row: Mapping[str, Any]) -> list[str]:
        reached = {True: "yes", False: "no", None: ""}[row["reached"]]
        values = [report.number(row["values"][column]) for column in self.columns]
        return [row["title"], row["unit"], *values, row["target"] or "", reached]
