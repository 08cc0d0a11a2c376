"""Groups live where Kafka puts them."""

from __future__ import annotations

import pytest

from headrace.coordinator.partitioning import java_string_hash, partition_for


# Values of Java's String.hashCode.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("ÿ", 255),
        ("\U0001f600", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_least_integer_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_every_group_has_a_partition() -> None:
    assert {partition_for(f"group-{n}", 50) for n in range(2_000)} == set(range(50))
    assert partition_for("hello", 50) == 22
