"""Draws transition tables as pictures: python docs/states/draw.py.

A line for each state, a row for each transition: what happens, from which state to which, and what
is done about it. It is drawn from the table that the code obeys; a test holds the pictures to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent

CHAR = 7.0
ROW = 26
HEAD = 56
PAD = 16
LINE_WIDTH_MIN = 72
NAME_CHARS_MAX = 14

INK, FAINT, BAND, LINE, SELF, END = (
    "#1f2933", "#7b8794", "#f3f6f9", "#cbd2d9", "#7b8794", "#0b69a3",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """A table and where its picture belongs."""

    title: str
    table: str
    page: str


PICTURES = {
    "delay": Picture(
        "States of a delayed message",
        "headrace.ledger.delay.machine:TABLE",
        "delay.md",
    ),
    "half": Picture(
        "States of a half message",
        "headrace.ledger.half.states:TABLE",
        "half.md",
    ),
    "large": Picture(
        "States of a message in chunks at its reader",
        "headrace.large.reassembly_machine:TABLE",
        "large.md",
    ),
    "lag": Picture(
        "States of a level of lag",
        "headrace.lag.levels:TABLE",
        "lag.md",
    ),
    "dispatch": Picture(
        "States of a partition at its owner",
        "headrace.dispatch.owned_partition:TRANSITIONS",
        "dispatch-protocol.md",
    ),
    "groups": Picture(
        "States of a classic group",
        "headrace.coordinator.states:TRANSITIONS",
        "groups.md",
    ),
    "transactions": Picture(
        "States of a transactional id",
        "headrace.coordinator.transactions.states:TRANSITIONS",
        "transactions.md",
    ),
}


class Row(NamedTuple):
    """One transition, in words."""

    state: str
    event: str
    next: str
    effect: str = ""


def read_table(place: str) -> tuple[list[Row], dict[str, str]]:
    """The rows of a table at MODULE:NAME, and what its states mean where their names do not say.

    It is {(state, event): next state} or {(state, event): (next state, effect)}.
    """
    module, _, name = place.partition(":")
    table: Mapping[Any, Any] = getattr(import_module(module), name)
    read = [
        (*key, *(after if isinstance(after, tuple) else (after,))) for key, after in table.items()
    ]
    states = dict.fromkeys(state for row in read for state in (row[0], row[2]))
    # Where the value of a state is a sentence, its name stands for it and the sentence below.
    are_long = any(len(_word(state)) > NAME_CHARS_MAX for state in states)
    names = {state: _name(state) if are_long else _word(state) for state in states}
    meanings = {names[state]: _word(state) for state in states if are_long}
    return [
        Row(names[state], _word(event), names[to], *map(_word, effect))
        for state, event, to, *effect in read
    ], meanings


def draw(title: str, rows: list[Row], meanings: Mapping[str, str]) -> str:
    """The picture as SVG."""
    states = list(dict.fromkeys(name for row in rows for name in (row.state, row.next)))
    # Rows of one state stand together, in the order in which states come up.
    rows = sorted(rows, key=lambda row: states.index(row.state))
    step = max(LINE_WIDTH_MIN, max(map(len, states)) * CHAR + PAD)
    left = PAD + max(len(row.event) for row in rows) * CHAR + step / 2 + PAD
    x = {state: left + step * index for index, state in enumerate(states)}
    effects_at = x[states[-1]] + step / 2 + PAD
    width = effects_at + max(len(row.effect) for row in rows) * CHAR + PAD
    legend = [f"{name}: {text}" for name, text in meanings.items()]
    width = max(width, *(len(line) * CHAR + 2 * PAD for line in (*legend, title)))
    bottom = HEAD + PAD + ROW * len(rows)
    height = bottom + PAD + (ROW * 0.75) * len(legend) + (PAD if legend else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="monospace" font-size="11.5" '
        f'role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" rx="8" fill="#ffffff"/>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        f'markerHeight="8" orient="auto"><path d="M0,0.5 L8,4 L0,7.5 z" fill="{END}"/></marker>'
        "</defs>",
    ]
    for index, row in enumerate(rows):
        if states.index(row.state) % 2 == 0:
            top = HEAD + PAD / 2 + ROW * index
            parts.append(f'<rect y="{top:g}" width="100%" height="{ROW}" fill="{BAND}"/>')
    for state in states:
        half = step / 2 - 4
        parts += [
            f'<line x1="{x[state]:g}" y1="{HEAD - 8}" x2="{x[state]:g}" y2="{bottom - PAD / 2:g}" '
            f'stroke="{LINE}"/>',
            f'<rect x="{x[state] - half:g}" y="18" width="{2 * half:g}" height="28" rx="6" '
            f'fill="#ffffff" stroke="{INK}"/>',
            _text(x[state], 36, state, anchor="middle", weight="bold"),
        ]
    for index, row in enumerate(rows):
        y = HEAD + PAD / 2 + ROW * (index + 0.5)
        parts += [
            _text(PAD, y + 4, row.event),
            _arrow(x[row.state], x[row.next], y),
            _text(effects_at, y + 4, row.effect, FAINT) if row.effect else "",
        ]
    for index, line in enumerate(legend):
        parts.append(_text(PAD, bottom + PAD + ROW * 0.75 * index + 8, line, FAINT))
    return "\n".join(filter(None, [*parts, "</svg>"])) + "\n"


def _arrow(start: float, end: float, y: float) -> str:
    if start == end:
        path = f"M{start:g},{y - 5:g} c16,-4 16,14 1,10"
        return f'<path d="{path}" fill="none" stroke="{SELF}" marker-end="url(#tip)"/>'
    return (
        f'<circle cx="{start:g}" cy="{y:g}" r="3.5" fill="{END}"/>'
        f'<line x1="{start:g}" y1="{y:g}" x2="{end:g}" y2="{y:g}" stroke="{END}" '
        'stroke-width="1.5" marker-end="url(#tip)"/>'
    )


def _text(
    x: float, y: float, text: str, colour: str = INK, *, anchor: str = "start", weight: str = ""
) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return (
        f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}"{bold}>'
        f"{escape(text)}</text>"
    )


def _word(value: object) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _name(state: object) -> str:
    return state.name.lower().replace("_", " ") if isinstance(state, Enum) else str(state)


def picture(name: str) -> str:
    """The picture of this name, as its table is now."""
    return draw(PICTURES[name].title, *read_table(PICTURES[name].table))


if __name__ == "__main__":
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(picture(name))
        print(FOLDER / f"{name}.svg")
