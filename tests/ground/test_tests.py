"""Habits of the tests themselves."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def sleeps(path: Path) -> list[int]:
    """Lines that call time.sleep."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "time"
    ]


def test_no_test_sleeps() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}" for path in TESTS.rglob("*.py") for line in sleeps(path)
    }
    assert not found
