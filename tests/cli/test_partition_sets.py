"""Partitions in one word."""

from __future__ import annotations

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.common.partition_sets import parse_partitions
from headrace.client.admin.partition_sets import show_partitions


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
