"""The house stays in order: every path in the docs exists, files stay small, words stay plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
DOCS = ROOT / "docs"

LINES_MAX = 500
# The walks of docs/inside.md, and how many files each may visit.
FILES_MAX = {
    "A produce": 10,
    "A fetch": 10,
    "A handled message": 8,
    "A delayed message": 10,
    "A dispatched job": 9,
    "A Spark micro-batch": 15,
}
# Turns of phrase that made readers stop, and what to write instead.
HABITS = {
    r"\banew\b": "again",
    r"\b(that|which|what|who) is none\b": "that is not one",
    r"\bfor ever\b": "forever",
    r"\bas often as wanted\b": "as many as you like",
    r"\bhas the (word|say)\b": "decides",
    r"\bcame to nothing\b": "aborted",
    r"\bso many (records|messages|rows|bytes|partitions|milliseconds)\b": "this many",
    r"\bwhat is wrong is said\b": "errors say what is wrong",
}


def modules() -> Iterator[Path]:
    return SOURCE.rglob("*.py")


def pages() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    yield from (page for page in DOCS.glob("*.md"))


def walks() -> dict[str, list[str]]:
    """The walks of docs/inside.md: for each heading, its files in order."""
    found: dict[str, list[str]] = {}
    for section in (DOCS / "inside.md").read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        found[heading] = re.findall(r"^\d+\. `([\w/]+\.py)`", text, re.MULTILINE)
    return found


def test_every_walk_names_files_that_exist_and_is_short() -> None:
    assert walks().keys() == FILES_MAX.keys()
    for heading, files in walks().items():
        assert files, heading
        assert [file for file in files if not (SOURCE / file).is_file()] == [], heading
        assert len(set(files)) <= FILES_MAX[heading], heading


def test_the_glossary_names_places_that_exist() -> None:
    named = re.findall(r"`(\w+/[\w/]*(?:\.py)?)`", (DOCS / "glossary.md").read_text())
    assert named
    assert [each for each in named if not (SOURCE / each).exists()] == []


def test_links_between_pages_lead_somewhere() -> None:
    dead = [
        f"{page.name}: {target}"
        for page in pages()
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert dead == []


def test_no_module_is_too_long() -> None:
    long = [str(path) for path in modules() if len(path.read_text().splitlines()) > LINES_MAX]
    assert long == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [str(path) for path in modules() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


@pytest.mark.parametrize("habit", HABITS)
def test_words_are_plain(habit: str) -> None:
    found = []
    for path in (*modules(), *pages()):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(habit, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == [], f"write: {HABITS[habit]}"
