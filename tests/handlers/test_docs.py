"""The page about handlers documents every argument, with its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.handlers.spec import make_spec

PAGE = Path(__file__).parents[2] / "docs" / "handlers.md"
_ROW = re.compile(r"^\| `([*\w]+)=?` \| (.*?) \|", re.MULTILINE)


def documented(heading: str) -> dict[str, str]:
    """The arguments in the table of a section, each with its default."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    section, _, _ = rest.partition("\n## ")
    return dict(_ROW.findall(section))


@pytest.mark.parametrize(
    ("heading", "function", "given"),
    [("The app", App.__init__, "self"), ("All options of `@app.handler`", make_spec, "function")],
)
def test_every_argument_is_documented_with_its_default(
    heading: str, function: Callable[..., Any], given: str
) -> None:
    rows = documented(heading)
    parameters = inspect.signature(function).parameters
    assert {name.removeprefix("*") for name in rows} == set(parameters) - {given}
    for name, default in rows.items():
        actual = parameters[name.removeprefix("*")].default
        # The page may describe a default in words, but must not name another one.
        if default.startswith("`") and actual is not None:
            assert default.strip("`").replace('"', "'") == repr(actual), name
        elif default.replace(",", "").isdigit():
            assert int(default.replace(",", "")) == actual, name
