"""Declarations: versions, defaults, equality, and what a declaration may not do."""

from __future__ import annotations

import pytest

from headrace.protocol.primitives import ZERO_UUID
from headrace.protocol.schema import (
    Message,
    array,
    boolean,
    int32,
    parse_versions,
    string,
    struct,
    uuid,
)


class Part(Message):
    index: int = int32(default=-1)


class Whole(Message, key=500, versions="2-6", flexible=5):
    name: str | None = string(nullable="3+")
    topic_id: bytes = uuid("4+")
    parts: list[Part] = array(Part)
    numbers: list[int] | None = array(int32, nullable="0+", default=None)
    required: Part = struct(Part)
    optional: Part | None = struct(Part, nullable="0+")
    extra: Part | None = struct(Part, "5+", tag=0)
    flag: bool = boolean(default=True)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3+", [3, 4, 32767], [2]), ("0-8", [0, 8], [9]), ("2", [2], [1, 3]), ("none", [], [0, 1])],
)
def test_versions_are_parsed(text: str, inside: list[int], outside: list[int]) -> None:
    span = parse_versions(text)
    assert all(version in span for version in inside)
    assert not any(version in span for version in outside)


def test_the_class_knows_its_key_and_versions() -> None:
    assert (Whole.API_KEY, Whole.VERSIONS, Whole.FLEXIBLE) == (500, (2, 6), 5)
    assert [field.name for field in Whole.FIELDS][:3] == ["name", "topic_id", "parts"]


def test_a_message_begins_with_its_defaults() -> None:
    whole = Whole()
    assert (whole.name, whole.topic_id, whole.parts, whole.numbers) == ("", ZERO_UUID, [], None)
    assert (whole.required, whole.optional, whole.extra) == (Part(), None, None)
    assert whole.flag


def test_lists_and_parts_are_never_shared_between_messages() -> None:
    one, other = Whole(), Whole()
    one.parts.append(Part())
    one.required.index = 4
    assert other == Whole()


def test_messages_are_equal_by_value_and_by_class() -> None:
    assert Whole(parts=[Part(index=1)]) == Whole(parts=[Part(index=1)])
    assert Whole(parts=[Part(index=1)]) != Whole(parts=[Part(index=2)])
    assert Part() != Whole()


def test_messages_show_their_fields() -> None:
    assert repr(Part(index=3)) == "Part(index=3)"


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError, match="indx"):
        Part(indx=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Part().indx = 1  # type: ignore[attr-defined]


def test_fields_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Part(1)  # type: ignore[call-arg]
