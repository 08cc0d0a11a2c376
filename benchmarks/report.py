"""A comparison as a table for people, as JSON for programs, as Markdown and a plot for the docs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.asking import ROOT
from benchmarks.figures import Figure, Row
from benchmarks.machine import Facts

PAGE = ROOT / "docs" / "benchmarks.md"

_MARKS = {True: "yes", False: "no", None: ""}


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def ratio_text(row: Row) -> str:
    """Headrace's value as a multiple of the peer's."""
    return f"{row.ratio:.2f}x" if row.ratio is not None else "-"


def target_text(figure: Figure) -> str:
    """The target as it was set, such as `>= 1.5x` or `<= 80 MB`."""
    if figure.target is None:
        return ""
    sign = ">=" if figure.better == "higher" else "<="
    unit = "x" if figure.target.relative else f" {figure.unit}"
    return f"{sign} {figure.target.limit:g}{unit}"


def show(result: Mapping[str, Any], shown: Table, output: str, columns: int) -> None:
    """A bench's outcome on standard output; `columns` wide where that is not a terminal."""
    if output == "json":
        print(json.dumps(result, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else columns).print(shown)


def table(rows: list[Row], own_title: str, peer_title: str) -> Table:
    """The comparison for a terminal."""
    out = Table(title=f"{own_title} beside {peer_title}", title_justify="left")
    out.add_column("load", no_wrap=True)
    out.add_column("unit", no_wrap=True)
    for column in ("Kafka", "Headrace", "ratio", "target"):
        out.add_column(column, justify="right", no_wrap=True)
    out.add_column("reached", no_wrap=True)
    for row in rows:
        style = {True: "green", False: "red", None: ""}[row.reached]
        out.add_row(
            row.figure.title,
            row.figure.unit,
            number(row.peer),
            number(row.own),
            ratio_text(row),
            target_text(row.figure),
            _MARKS[row.reached],
            style=style,
        )
    return out


def document(rows: list[Row], facts: Facts, details: Mapping[str, Any]) -> dict[str, Any]:
    """The comparison for programs: medians, ratios, targets, and every round's values."""
    return {
        "machine": facts,
        "figures": [
            {
                "name": row.figure.name,
                "title": row.figure.title.strip(),
                "unit": row.figure.unit,
                "better": row.figure.better,
                "kafka": row.peer,
                "headrace": row.own,
                "ratio": row.ratio,
                "target": target_text(row.figure) or None,
                "reached": row.reached,
            }
            for row in rows
        ],
        **details,
    }


def markdown(
    name: str,
    rows: list[Row],
    facts: Facts,
    titles: tuple[str, str],
    command: str,
    doubts: list[str],
) -> str:
    """A bench's generated part of the docs page."""
    own_title, peer_title = titles
    lines = [
        f"Measured on {facts['date']} by `{command}`: {own_title} beside {peer_title}.",
        "",
        f"![How many times better Headrace is](img/bench-{name}.svg)",
        "",
        f"| load | unit | {peer_title} | {own_title} | ratio | target | reached |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        title = row.figure.title
        cells = [
            f"&nbsp;&nbsp;{title.strip()}" if title.startswith(" ") else title,
            row.figure.unit,
            number(row.peer),
            number(row.own),
            ratio_text(row),
            target_text(row.figure),
            _MARKS[row.reached],
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n**Doubtful:** {doubt}." for doubt in doubts]
    lines += ["", "| machine | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items() if name != "date"]
    return "\n".join(lines) + "\n"


def insert(page: str, name: str, generated: str) -> str:
    """The page with a bench's generated part replaced; what people wrote around it stays."""
    first, last = f"<!-- bench {name}: begin -->", f"<!-- bench {name}: end -->"
    before, begin, rest = page.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"the page has no {first} ... {last}")
    return f"{before}{first}\n{generated}{last}{after}"


def write_page(name: str, generated: str) -> None:
    """Put a bench's generated part into the docs page."""
    PAGE.write_text(insert(PAGE.read_text(), name, generated))


def plot(rows: list[Row], path: Path, titles: tuple[str, str]) -> None:
    """Bars of how many times better Headrace is, with the targets that are ratios as marks."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "headrace"  # the same figures give the same file
    from matplotlib import pyplot

    shown = [row for row in rows if row.advantage is not None][::-1]
    labels = [_label(row, rows) for row in shown]
    values = [row.advantage or 0.0 for row in shown]
    figure, axes = pyplot.subplots(figsize=(9, 0.32 * len(shown) + 1.2))
    colours = ["#2a7f62" if value >= 1 else "#b5523b" for value in values]
    axes.barh(labels, values, color=colours, height=0.7)
    for at, row in enumerate(shown):
        axes.text(values[at] * 1.05, at, f"{values[at]:.1f}x", va="center", fontsize=8)
        target = row.figure.target
        if target is not None and target.relative:
            wanted = target.limit if row.figure.better == "higher" else 1 / target.limit
            axes.plot([wanted, wanted], [at - 0.4, at + 0.4], color="black", linewidth=1.5)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlim(right=max(values, default=1.0) * 2)
    axes.tick_params(axis="y", labelsize=8)
    axes.set_xlabel(f"times better than {titles[1]} (log scale; black marks are the targets)")
    axes.set_title(titles[0])
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _label(row: Row, rows: list[Row]) -> str:
    """A row's title; an indented one follows the title of the row that it belongs to."""
    if not row.figure.title.startswith(" "):
        return row.figure.title
    parents = [r for r in rows[: rows.index(row)] if not r.figure.title.startswith(" ")]
    parent = parents[-1].figure.title if parents else ""
    return f"{parent}:{row.figure.title[1:]}"
