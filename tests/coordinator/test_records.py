"""Changes as records of `__consumer_offsets`: Kafka's bytes, there and back."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.records import (
    Change,
    Commit,
    Generation,
    GroupChange,
    OffsetChange,
    StoredMember,
    decode,
    encode,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)

# Only v1 has an expiry, and only v3 a leader epoch: no client sends both.
commits = st.one_of(
    st.builds(Commit, int64, int32, texts, int64, st.just(-1)),
    st.builds(Commit, int64, st.just(-1), texts, int64, st.integers(0, 2**63 - 1)),
)
members = st.builds(
    StoredMember,
    texts,
    st.none() | texts,
    texts,
    texts,
    timeouts,
    timeouts,
    st.binary(max_size=50),
    st.binary(max_size=50),
)
generations = st.builds(
    Generation,
    generation=int32,
    protocol_type=texts,
    protocol=st.none() | texts,
    leader=st.none() | texts,
    state_timestamp_ms=int64,
    members=st.lists(members, max_size=4).map(tuple),
)
changes = st.one_of(
    st.builds(OffsetChange, texts, texts, int32, st.none() | commits),
    st.builds(GroupChange, texts, st.none() | generations),
)


@settings(deadline=None)
@given(changes)
def test_a_change_comes_back_from_its_record(change: Change) -> None:
    assert decode(*encode(change)) == change


def test_an_offset_has_the_bytes_that_kafka_writes() -> None:
    key, value = encode(OffsetChange("grp", "top", 7, Commit(258, 5, "hi", 1_700_000_000_000)))
    assert key == b"\x00\x01" + b"\x00\x03grp" + b"\x00\x03top" + b"\x00\x00\x00\x07"
    assert value == (
        b"\x00\x03"
        + (258).to_bytes(8, "big")
        + (5).to_bytes(4, "big")
        + b"\x00\x02hi"
        + (1_700_000_000_000).to_bytes(8, "big")
    )


def test_a_generation_has_the_bytes_that_kafka_writes() -> None:
    member = StoredMember("m-1", None, "cl", "/h", 300, 10, b"sub", b"as")
    key, value = encode(GroupChange("grp", Generation(2, "consumer", "range", "m-1", 9, (member,))))
    assert key == b"\x00\x02" + b"\x00\x03grp"
    assert value == (
        b"\x00\x03"
        + b"\x00\x08consumer"
        + (2).to_bytes(4, "big")
        + b"\x00\x05range"
        + b"\x00\x03m-1"
        + (9).to_bytes(8, "big")
        + b"\x00\x00\x00\x01"
        + b"\x00\x03m-1"
        + b"\xff\xff"
        + b"\x00\x02cl"
        + b"\x00\x02/h"
        + (300).to_bytes(4, "big")
        + (10).to_bytes(4, "big")
        + b"\x00\x00\x00\x03sub"
        + b"\x00\x00\x00\x02as"
    )


def test_records_of_other_kinds_are_left_alone() -> None:
    assert decode(b"\x00\x03\x00\x01g", b"\x00\x00") is None


def test_a_member_of_the_oldest_version_has_one_timeout() -> None:
    value = (
        b"\x00\x00"
        + b"\x00\x08consumer"
        + (1).to_bytes(4, "big")
        + b"\x00\x05range"
        + b"\x00\x01m"
        + b"\x00\x00\x00\x01"
        + b"\x00\x01m\x00\x01c\x00\x01h"
        + (77).to_bytes(4, "big")
        + b"\x00\x00\x00\x00"
        + b"\x00\x00\x00\x00"
    )
    change = decode(b"\x00\x02\x00\x01g", value)
    assert isinstance(change, GroupChange)
    assert change.generation is not None
    assert change.generation.members[0].rebalance_timeout_ms == 77
    assert change.generation.state_timestamp_ms == -1
