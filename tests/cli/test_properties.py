"""Settings files and NAME=VALUE arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.common.pairs import parse_pairs, split_address
from headrace.cli.common.properties import read_properties


def test_comments_blank_lines_and_continuations_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# note\n! note\n\nlog.dirs = /a,\\\n  /b\nnum.partitions=3\nempty=\n")
    assert read_properties(file) == {"log.dirs": "/a,/b", "num.partitions": "3", "empty": ""}


def test_a_line_that_is_no_setting_is_named_by_file_and_number(tmp_path: Path) -> None:
    file = tmp_path / "bad.properties"
    file.write_text("num.partitions=3\nnonsense\n")
    with pytest.raises(CliError, match=r"bad\.properties:2: 'nonsense' is not NAME=VALUE"):
        read_properties(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"cannot read the settings file .*nowhere"):
        read_properties(tmp_path / "nowhere")


def test_the_last_of_two_values_counts() -> None:
    assert parse_pairs(["a=1", "b=x=y", "a=2"], "--set") == {"a": "2", "b": "x=y"}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_an_argument_without_a_name_or_an_equals_sign_is_refused(pair: str) -> None:
    with pytest.raises(CliError, match=r"--set .* is not NAME=VALUE"):
        parse_pairs([pair], "--set")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_split_at_its_last_colon(text: str, address: tuple[str, int]) -> None:
    assert split_address(text, "--listen") == address


@pytest.mark.parametrize("text", ["9092", ":9092", "host:", "host:x", "host:70000", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="is not HOST:PORT"):
        split_address(text, "--listen")
