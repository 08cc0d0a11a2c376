"""The dispatcher's figures as a table for people, and as Markdown and a plot for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import report
from headrace.cli.version import version

_COLOURS = {"headrace": "#2a7f62"}
_OTHER = "#7a9cc6"


def table(result: dict[str, Any], columns: Mapping[str, str]) -> Table:
    """The figures for a terminal."""
    out = Table(title=f"Jobs; the ideal is {result['ideal_s']:.1f} s", title_justify="left")
    for name in ("load", "unit", *columns.values(), "target", "reached"):
        out.add_column(name, no_wrap=True)
    for row in result["figures"]:
        out.add_row(*_cells(row, columns))
    return out


def markdown(name: str, result: dict[str, Any], columns: Mapping[str, str], command: str) -> str:
    """The bench's generated part of the docs page."""
    facts = result["machine"]
    names = ("load", "unit", *columns.values(), "target", "reached")
    lines = [
        f"Measured on {facts['date']} by `{command}`: Headrace {version()}. The ideal schedule "
        f"takes {result['ideal_s']:.1f} s.",
        "",
        f"![Makespan by rival](img/bench-{name}.svg)",
        "",
        f"| {' | '.join(names)} |",
        f"|---|---|{'---:|' * (len(columns) + 1)}---|",
    ]
    for row in result["figures"]:
        title, *rest = _cells(row, columns)
        shown = f"&nbsp;&nbsp;{title.strip()}" if title.startswith(" ") else title
        lines.append(f"| {' | '.join([shown, *rest])} |")
    lines += [
        f"\n**Left out:** {columns[rival]}: {why}." for rival, why in result["left_out"].items()
    ]
    lines += ["", "| machine | |", "|---|---|"]
    lines += [f"| {fact} | {value} |" for fact, value in facts.items() if fact != "date"]
    return "\n".join(lines) + "\n"


def plot(result: dict[str, Any], columns: Mapping[str, str], path: Path) -> None:
    """Bars of the makespan, with a line at the ideal."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    (row,) = [row for row in result["figures"] if row["name"] == "seconds"]
    shown = [name for name in columns if row["values"][name] is not None][::-1]
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(shown) + 1.2))
    for at, name in enumerate(shown):
        value = row["values"][name]
        axes.barh(at, value, height=0.6, color=_COLOURS.get(name, _OTHER))
        axes.text(value, at, f" {report.number(value)} s", va="center", fontsize=8)
    axes.axvline(result["ideal_s"], color="#b03a3a", linewidth=1, label="the ideal")
    axes.set_yticks(range(len(shown)), [columns[name] for name in shown])
    axes.set_xlabel("seconds until 2,000 heavy-tailed jobs are done by 8 workers")
    axes.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _cells(row: dict[str, Any], columns: Mapping[str, str]) -> list[str]:
    reached = {True: "yes", False: "no", None: ""}[row["reached"]]
    values = [report.number(row["values"][column]) for column in columns]
    return [row["title"], row["unit"], *values, row["target"] or "", reached]
