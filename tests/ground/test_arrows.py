"""Rules of the source tree that the import contracts cannot say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
MODULES = sorted(SOURCE.rglob("*.py"))
LINES_MAX = 500


def names_of_os(tree: ast.AST) -> set[str]:
    """Attributes taken of `os`, by `os.name` or by `from os import name`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "os":
                names.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names.update(alias.name for alias in node.names)
    return names


def test_only_the_configuration_reads_the_environment() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if names_of_os(ast.parse(path.read_text())) & {"environ", "environb", "getenv", "getenvb"}
    }
    assert readers <= {"config/environment.py"}


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = {
        path.relative_to(SOURCE).as_posix(): lines
        for path in MODULES
        if (lines := len(path.read_text().splitlines())) > LINES_MAX
    }
    assert not long


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX", "NotImplementedError"])
def test_nothing_is_left_for_later(word: str) -> None:
    assert not [str(path) for path in MODULES if word in path.read_text()]


def test_every_module_opens_with_what_it_is() -> None:
    silent = [
        path.relative_to(SOURCE).as_posix()
        for path in MODULES
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent
