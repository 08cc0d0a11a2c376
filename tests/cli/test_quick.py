"""The short way past typer reads what typer reads, or leaves it to typer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.cli import app
from headrace.cli.broker import quick
from headrace.cli.broker.serving import ServeOptions


def typer_reads(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> ServeOptions:
    read: list[ServeOptions] = []
    collect: Callable[[ServeOptions], None] = read.append
    monkeypatch.setattr("headrace.cli.broker.broker.run_broker", collect)
    app.command()(args=["broker", *arguments], standalone_mode=False)
    return read[0]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--listen", "127.0.0.1:0", "--data-dir", "some/where"],
        ["--set", "a=1", "--set", "b=2", "--config", "file.properties"],
        ["--allow-insecure-listen", "--listen", "0.0.0.0:9092"],
    ],
)
def test_plain_options_are_read_alike(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert quick.read_plain(arguments) == typer_reads(arguments, monkeypatch)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--listen"],
        ["--listen=127.0.0.1:0"],
        ["--unknown", "x"],
        ["--set", "-x"],
        ["x"],
    ],
)
def test_everything_else_is_left_to_typer(arguments: list[str]) -> None:
    assert quick.read_plain(arguments) is None


def test_every_option_has_a_field() -> None:
    options = ServeOptions(
        listen="h:1", data_dir=Path("d"), config=Path("c"), set=("a=1",), allow_insecure_listen=True
    )
    arguments = ["--listen", "h:1", "--data-dir", "d", "--config", "c", "--set", "a=1"]
    assert quick.read_plain([*arguments, "--allow-insecure-listen"]) == options
