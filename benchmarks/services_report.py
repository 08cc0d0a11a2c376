"""The figures of the services as a table for people, and as Markdown and a plot for the docs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import report
from headrace.cli.version import version


def table(result: dict[str, Any], columns: Mapping[str, str]) -> Table:
    """The figures for a terminal."""
    out = Table(title="Delayed messages", title_justify="left")
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
        f"Measured on {facts['date']} by `{command}`: Headrace {version()}.",
        "",
        f"![How late delayed messages are](img/bench-{name}.svg)",
        "",
        f"| {' | '.join(names)} |",
        f"|---|---|{'---:|' * (len(columns) + 1)}---|",
    ]
    for row in result["figures"]:
        title, *rest = _cells(row, columns)
        shown = f"&nbsp;&nbsp;{title.strip()}" if title.startswith(" ") else title
        lines.append(f"| {' | '.join([shown, *rest])} |")
    lines += [
        f"\n**Left out:** {columns[name]}: {why}." for name, why in result["left_out"].items()
    ]
    lines += ["", "| machine | |", "|---|---|"]
    lines += [f"| {fact} | {value} |" for fact, value in facts.items() if fact != "date"]
    return "\n".join(lines) + "\n"


def plot(result: dict[str, Any], columns: Mapping[str, str], path: Path) -> None:
    """Bars of how late messages are, by who delays them."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    rows = {row["name"]: row for row in result["figures"]}
    figure, axes = pyplot.subplots(figsize=(8, 2.6))
    shown = [name for name in columns if rows["late-1000-p99"]["values"][name] is not None]
    for offset, part, colour in ((0.2, "p50", "#7a9cc6"), (-0.2, "p99", "#2a7f62")):
        values = [rows[f"late-1000-{part}"]["values"][name] for name in shown]
        places = [index + offset for index in range(len(shown))]
        axes.barh(places, values, height=0.38, color=colour, label=part)
        for at, value in zip(places, values, strict=True):
            axes.text(value * 1.05, at, f"{report.number(value)} ms", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), [columns[name] for name in shown])
    axes.set_xscale("log")
    axes.set_xlabel("ms late at 1,000 due a second (log scale)")
    axes.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _cells(row: dict[str, Any], columns: Mapping[str, str]) -> list[str]:
    reached = {True: "yes", False: "no", None: ""}[row["reached"]]
    values = [report.number(row["values"][column]) for column in columns]
    return [row["title"], row["unit"], *values, row["target"] or "", reached]
