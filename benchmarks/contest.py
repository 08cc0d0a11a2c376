"""A contest's rows: what each rival reached, as a table, as JSON, as Markdown and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from benchmarks.figures import Figure, Row, Values
from benchmarks.machine import Facts
from benchmarks.report import number, ratio_text, target_text

# Rivals by name, with their titles, in the order of the columns.
RIVALS = {
    "plain": "by hand",
    "faststream": "FastStream",
    "aiokafka": "aiokafka",
    "pyrallel": "pyrallel",
    "headrace": "Headrace",
}
OWN, LIMIT = "headrace", "plain"
_COLOURS = {
    "plain": "#8a8a8a",
    "faststream": "#7a9cc6",
    "aiokafka": "#b08ac6",
    "pyrallel": "#c6a35a",
    "headrace": "#2a7f62",
}
_MARKS = {True: "yes", False: "no", None: ""}


@dataclass(frozen=True)
class ContestRow:
    """A figure's medians by rival."""

    figure: Figure
    values: Mapping[str, float]

    @property
    def pair(self) -> Row:
        """Headrace beside the loop by hand, which relative targets are about."""
        return Row(self.figure, self.values.get(OWN), self.values.get(LIMIT))


def rows_of(figures: Iterable[Figure], measured: Mapping[str, Values]) -> list[ContestRow]:
    """One row per figure that any rival has values for, from the medians of the rounds."""
    rows = [
        ContestRow(
            figure,
            {
                rival: median(values[figure.name])
                for rival, values in measured.items()
                if values.get(figure.name)
            },
        )
        for figure in figures
    ]
    return [row for row in rows if row.values]


def table(rows: list[ContestRow], title: str) -> Table:
    """The contest for a terminal."""
    out = Table(title=title, title_justify="left")
    out.add_column("load", no_wrap=True)
    out.add_column("unit", no_wrap=True)
    for name in (*RIVALS.values(), "ratio", "target"):
        out.add_column(name, justify="right", no_wrap=True)
    out.add_column("reached", no_wrap=True)
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.pair.reached]
        out.add_row(row.figure.title, *_cells(row), style=style)
    return out


def document(rows: list[ContestRow], facts: Facts, details: Mapping[str, Any]) -> dict[str, Any]:
    """The contest for programs: medians by rival, ratios, targets, and every round's answers."""
    return {
        "machine": facts,
        "figures": [
            {
                "name": row.figure.name,
                "title": row.figure.title.strip(),
                "unit": row.figure.unit,
                "better": row.figure.better,
                "values": dict(row.values),
                "ratio": row.pair.ratio,
                "target": target_text(row.figure) or None,
                "reached": row.pair.reached,
            }
            for row in rows
        ],
        **details,
    }


def markdown(
    name: str,
    rows: list[ContestRow],
    facts: Facts,
    versions: Mapping[str, str],
    command: str,
    left_out: Mapping[str, str],
) -> str:
    """The contest's generated part of the docs page."""
    against = ", ".join(title for rival, title in versions.items() if rival != OWN)
    lines = [
        f"Measured on {facts['date']} by `{command}`: {versions[OWN]} beside {against}.",
        "",
        f"![Messages a second by rival](img/bench-{name}.svg)",
        "",
        f"| load | unit | {' | '.join(RIVALS.values())} | ratio to by hand | target | reached |",
        f"|---|---|{'---:|' * (len(RIVALS) + 2)}---|",
    ]
    for row in rows:
        title = row.figure.title
        shown = f"&nbsp;&nbsp;{title.strip()}" if title.startswith(" ") else title
        lines.append(f"| {' | '.join([shown, *_cells(row)])} |")
    lines += [f"\n**Left out:** {RIVALS[rival]}: {why}." for rival, why in left_out.items()]
    lines += ["", "| machine | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items() if name != "date"]
    return "\n".join(lines) + "\n"


def plot(rows: list[ContestRow], path: Path, title: str) -> None:
    """Bars of messages a second by load and rival."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"  # the same figures give the same file
    from matplotlib import pyplot

    shown = [row for row in rows if row.figure.unit == "messages/s"][::-1]
    figure, axes = pyplot.subplots(figsize=(9, 0.9 * len(shown) + 1.2))
    height = 0.8 / len(RIVALS)
    for place, (rival, label) in enumerate(reversed(RIVALS.items())):
        at = [
            index + (place - 2) * height for index, row in enumerate(shown) if rival in row.values
        ]
        values = [row.values[rival] for row in shown if rival in row.values]
        axes.barh(at, values, height=height, color=_COLOURS[rival], label=label)
        for y, value in zip(at, values, strict=True):
            axes.text(value * 1.05, y, number(value), va="center", fontsize=7)
    axes.set_yticks(range(len(shown)), [row.figure.title.strip() for row in shown], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlabel("messages a second (log scale)")
    axes.set_title(title)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _cells(row: ContestRow) -> list[str]:
    """A row's cells after its title."""
    return [
        row.figure.unit,
        *(number(row.values.get(rival)) for rival in RIVALS),
        ratio_text(row.pair),
        target_text(row.figure),
        _MARKS[row.pair.reached],
    ]
