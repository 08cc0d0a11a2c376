"""The list of all verbs and options on the page of the command line."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.cli.reference import MARKER, option_names, update, verbs

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def test_the_list_of_verbs_is_current() -> None:
    page = PAGE.read_text()
    assert page == update(page), "run: python -m headrace.cli.reference docs/cli.md"


def test_every_verb_and_option_is_on_the_page() -> None:
    page = PAGE.read_text()
    listed = set(re.findall(r"--?[A-Za-z][A-Za-z-]*", page.partition(MARKER)[2]))
    for path, verb in verbs():
        assert re.search(rf"^\| `{' '.join(path)}[` ]", page, re.MULTILINE), path
        assert set(option_names(verb)) <= listed, path


def test_every_noun_is_in_the_overview() -> None:
    overview = PAGE.read_text().partition("## service")[0]
    for path, _ in verbs():
        assert f"[`{path[0]}`]" in overview
