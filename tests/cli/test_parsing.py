"""The values of arguments and options: durations, pairs, addresses, partitions, files."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.common.parsing import (
    parse_duration_ms,
    parse_pairs,
    parse_partitions,
    read_properties,
    show_duration,
    split_address,
)
from headrace.client.admin.partition_sets import show_partitions
from headrace.client.times import parse_time_ms, show_time


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), ("90ms", 90), ("15m", 900_000), ("1h30m", 5_400_000), ("1w2d", 777_600_000)],
)
def test_durations_are_read(text: str, ms: int) -> None:
    assert parse_duration_ms(text, "--for") == ms


@pytest.mark.parametrize("text", ["", "15", "m", "-15m", "1.5h", "15 m", "1y"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(CliError, match=r"--for .* is not a duration"):
        parse_duration_ms(text, "--for")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0, "0ms"), (90, "90ms"), (61_500, "1m1s"), (7_200_000, "2h"), (864_000_001, "1w3d")],
)
def test_durations_are_shown_in_two_units(ms: int, text: str) -> None:
    assert show_duration(ms) == text


def test_a_time_without_a_zone_is_utc() -> None:
    assert parse_time_ms("1970-01-02") == 86_400_000
    assert parse_time_ms("1970-01-01T00:00:01.5") == 1500
    assert parse_time_ms("1970-01-01T01:00+01:00") == 0
    assert parse_time_ms("yesterday") is None
    assert show_time(1500) == "1970-01-01T00:00:01.500Z"


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


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("orders", None), ("orders:0", [0]), ("orders:4,0-2,1", [0, 1, 2, 4]), ("orders:3-3", [3])],
)
def test_topic_and_partitions_are_read(text: str, partitions: list[int] | None) -> None:
    assert parse_partitions(text, "-t") == ("orders", partitions)


@pytest.mark.parametrize("text", ["", ":1", "t:", "t:a", "t:2-1", "t:1:2", "t:0-9999999"])
def test_what_is_no_set_of_partitions_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="-t"):
        parse_partitions(text, "-t")


def test_neighbours_are_shown_as_a_span() -> None:
    assert show_partitions("orders", [5, 0, 2, 1, 7, 8]) == "orders:0-2,5,7-8"
