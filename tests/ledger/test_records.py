"""State records and bodies: what was written comes back, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies

from headrace.ledger.machine import NEVER_MS, CommandPosition, LedgerEntry
from headrace.ledger.records import (
    pack,
    pack_message,
    partition_of,
    read_key,
    read_value,
    state_key,
    state_value,
    unpack,
    unpack_message,
)

TEXT = strategies.text(strategies.characters(exclude_categories=["Cs"]), max_size=20)
BYTES = strategies.none() | strategies.binary(max_size=50)
PLACES = strategies.builds(
    CommandPosition, strategies.integers(0, 2**31 - 1), strategies.integers(0, 2**63 - 1)
)
ENTRIES = strategies.builds(
    LedgerEntry,
    TEXT,
    strategies.sampled_from(["scheduled", "cancelled", "p"]),
    strategies.integers(0, NEVER_MS),
    strategies.integers(0, 2**63 - 1),
    PLACES,
    strategies.integers(0, 2**31 - 1),
    strategies.binary(max_size=50),
    strategies.just(()),
)


@given(ENTRIES, strategies.integers(0, 2**64 - 1))
def test_an_entry_comes_back(entry: LedgerEntry, writer: int) -> None:
    id, place = read_key(state_key(entry.id, entry.position))
    assert read_value(id, place, state_value(entry, writer)) == (entry, writer)


@given(strategies.lists(BYTES, max_size=8))
def test_packed_parts_come_back(parts: list[bytes | None]) -> None:
    assert unpack(pack(parts)) == parts


@given(TEXT, BYTES, BYTES, strategies.lists(strategies.tuples(TEXT, BYTES), max_size=4))
def test_a_packed_message_comes_back(
    topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    assert unpack_message(pack_message(topic, key, value, headers)) == (topic, key, value, headers)


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\5abc", b"\0\0\0\1a\0\0"])
def test_bytes_that_are_no_list_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a packed list"):
        unpack(data)


@pytest.mark.parametrize("value", [b"", b"\2" + bytes(60)])
def test_a_value_of_another_version_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="another version"):
        read_value("a", CommandPosition(0, 0), value)


def test_ids_are_spread_over_the_partitions() -> None:
    counts = [0] * 4
    for number in range(4_000):
        counts[partition_of(f"order-{number}", 4)] += 1
    assert min(counts) > 800
