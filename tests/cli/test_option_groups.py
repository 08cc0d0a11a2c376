"""Options that a verb takes as one dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from headrace.cli.common.option_groups import with_groups


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int, typer.Option("--width", "-w", help="In metres.")]
    height: Annotated[int, typer.Option()] = 3


def called(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()

    @app.command()
    @with_groups
    def draw(name: str, *, size: Size, loud: bool = False) -> None:
        """Draw a shape."""
        print(name, size.width, size.height, loud)

    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def test_each_field_is_an_option() -> None:
    assert called("box", "-w", "2", "--loud") == (0, "box 2 3 True\n")
    assert called("box", "--width", "2", "--height", "5") == (0, "box 2 5 False\n")


def test_a_field_without_a_default_is_required() -> None:
    code, output = called("box")
    assert code == 2
    assert "--width" in output


def test_help_lists_the_fields() -> None:
    code, output = called("--help")
    assert code == 0
    assert "Draw a shape." in output
    assert "In metres." in output
