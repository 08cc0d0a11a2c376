"""Commits that differ in their offsets only: the same records and the same state as any others."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.commit_record_templates import (
    SHARED_RECORDS_MAX,
    CommitBatch,
    CommitRecordTemplate,
    NoTemplate,
    split,
)
from headrace.coordinator.coordinator import GroupCoordinator
from headrace.coordinator.records import Commit, OffsetChange, encode
from headrace.coordinator.settings import GroupSettings
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.batch import build_batch
from headrace.protocol.records import Record

Place = tuple[str, int, str]

NUMBERS = st.integers(-(2**63), 2**63 - 1)
EPOCHS = st.integers(-(2**31), 2**31 - 1)
PLACES = st.lists(
    st.tuples(st.sampled_from(["t", "ü" * 40]), st.integers(0, 300), st.text(max_size=80)),
    min_size=1,
    max_size=80,
    unique_by=lambda place: place[:2],
)


def template_of(places: list[Place], group_id: str = "g") -> CommitRecordTemplate:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for topic, index, metadata in places:
        part = topics.setdefault(topic, OffsetCommitRequestTopic(name=topic, partitions=[]))
        part.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=1, committed_metadata=metadata
            )
        )
    return CommitRecordTemplate(
        OffsetCommitRequest(group_id=group_id, member_id="", topics=list(topics.values()))
    )


@settings(max_examples=60, deadline=None)
@given(places=PLACES, now_ms=st.integers(0, 2**62), data=st.data())
def test_the_batch_is_the_one_that_the_records_give(
    places: list[Place], now_ms: int, data: st.DataObject
) -> None:
    template = template_of(places)
    assert template.count == len(places)
    for _ in range(2):  # what one commit filled in, the next one must not see
        offsets = data.draw(st.lists(NUMBERS, min_size=template.count, max_size=template.count))
        epochs = data.draw(st.lists(EPOCHS, min_size=template.count, max_size=template.count))
        records = [
            Record(
                number,
                now_ms,
                *encode(OffsetChange("g", topic, index, Commit(offset, epoch, metadata, now_ms))),
            )
            for number, ((topic, index, metadata), offset, epoch) in enumerate(
                zip(template.places, offsets, epochs, strict=True)
            )
        ]
        batch = CommitBatch(now_ms)
        batch.add(template, offsets, epochs)
        assert batch.build() == build_batch(records)
        assert len(batch.build()) == batch.size
        assert batch.commits == [(template, offsets, epochs)]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), size_max=st.integers(100, 9_000)
)
def test_commits_share_a_batch_as_long_as_they_fit(sizes: list[int], size_max: int) -> None:
    batch = CommitBatch(5)
    records: list[Record] = []
    for number, size in enumerate(sizes):
        template = template_of([("t", index, "m" * number) for index in range(size)], f"g{number}")
        if not batch.takes(template, size_max):
            assert len(records) + size > SHARED_RECORDS_MAX or batch.size + template.size > size_max
            break
        batch.add(template, range(size), [number] * size)
        for index in range(size):
            commit = Commit(index, number, "m" * number, 5)
            change = OffsetChange(f"g{number}", "t", index, commit)
            records.append(Record(len(records), 5, *encode(change)))
    assert batch.count == len(records) <= SHARED_RECORDS_MAX
    if records:
        assert batch.build() == build_batch(records)
        assert len(batch.build()) == batch.size <= size_max


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("repeat"), st.integers(0, 2), st.integers(0, 99)),
        st.tuples(st.just("commit"), st.integers(0, 3), st.integers(0, 99)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("look"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_folded_commits_come_to_the_same_state_as_plain_ones(
    steps: list[tuple[str, int, int]],
) -> None:
    templates = [
        template_of([("t", 0, "")]),
        template_of([("t", 0, "m"), ("t", 1, "")]),
        template_of([("u", 2, "")]),
    ]
    folded = GroupCoordinator(GroupSettings(), str)
    plain = GroupCoordinator(GroupSettings(), str)
    for now_ms, (what, which, offset) in enumerate(steps):
        if what == "repeat":
            template = templates[which]
            offsets = [offset + n for n in range(template.count)]
            folded.replay_from_template(template, offsets, [7] * template.count, now_ms)
            for (topic, index, metadata), number in zip(template.places, offsets, strict=True):
                commit = Commit(number, 7, metadata, now_ms)
                plain.replay(OffsetChange("g", topic, index, commit))
        elif what == "look":
            assert folded.stored() == plain.stored()
        else:
            commit_or_none = Commit(offset, 1, "", now_ms) if what == "commit" else None
            for coordinator in (folded, plain):
                coordinator.replay(OffsetChange("g", "t", which, commit_or_none))
    assert folded.groups.keys() == plain.groups.keys()
    assert folded.stored() == plain.stored()


def test_bytes_without_the_hole_cannot_be_split() -> None:
    with pytest.raises(NoTemplate):
        split(b"abc", 0, [b"x"])
    assert split(b"a-b-c", 0, [b"-", b"-"]) == [b"a", b"b", b"c"]
