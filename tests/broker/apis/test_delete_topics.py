"""DeleteTopics: by name and by id, with what is protected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", range(6))
def test_topics_are_deleted_by_name(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a", 2)
        await asker.create("b")
        request = DeleteTopicsRequest(topic_names=["a", "missing"])
        answer = await asker.ask(request, DeleteTopicsResponse, version)
        assert [(result.name, result.error_code) for result in answer.responses] == [
            ("a", 0),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert set(asker.node.catalog.topics) == {"b"}
        assert asker.node.partitions.get("a", 0) is None
        assert not (tmp_path / "a-0").exists()
        assert (tmp_path / "b-0").exists()

    with_broker(tmp_path, scenario)


def test_version_6_deletes_by_name_or_by_id(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        a, b, c = [await asker.create(name) for name in "abc"]
        unknown = os.urandom(16)
        request = DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name="a"),
                DeleteTopicState(topic_id=b.id),
                DeleteTopicState(topic_id=unknown),
                DeleteTopicState(name="c", topic_id=c.id),
                DeleteTopicState(),
            ]
        )
        answer = await asker.ask(request, DeleteTopicsResponse)
        told = [(result.name, result.topic_id, result.error_code) for result in answer.responses]
        assert told == [
            ("a", a.id, 0),
            ("b", b.id, 0),
            (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
            ("c", c.id, ErrorCode.INVALID_REQUEST),
            (None, bytes(16), ErrorCode.INVALID_REQUEST),
        ]
        assert set(asker.node.catalog.topics) == {"c"}

    with_broker(tmp_path, scenario)


def test_a_topic_named_twice_is_not_deleted(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        request = DeleteTopicsRequest(topic_names=["a", "a"])
        (result,) = (await asker.ask(request, DeleteTopicsResponse, 5)).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert "a" in asker.node.catalog.topics

    with_broker(tmp_path, scenario)


def test_the_brokers_own_topics_are_protected(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("__consumer_offsets")
        request = DeleteTopicsRequest(topic_names=["__consumer_offsets"])
        (result,) = (await asker.ask(request, DeleteTopicsResponse, 5)).responses
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "__consumer_offsets" in asker.node.catalog.topics

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_deletion_can_be_switched_off(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("a")
        request = DeleteTopicsRequest(topic_names=["a"])
        (result,) = (await asker.ask(request, DeleteTopicsResponse, version)).responses
        assert result.error_code == code
        assert "a" in asker.node.catalog.topics

    with_broker(tmp_path, scenario, {"delete.topic.enable": False})


def test_a_topic_made_again_is_empty_and_has_another_id(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        first = await asker.create("a")
        await asker.produce("a", 0, b"x")
        await asker.ask(DeleteTopicsRequest(topic_names=["a"]), DeleteTopicsResponse, 5)
        second = await asker.create("a")
        assert first.id != second.id
        partition = asker.node.partitions.get("a", 0)
        assert partition is not None
        assert partition.log.end_offset == 0
        assert partition.topic_id == second.id

    with_broker(tmp_path, scenario)
