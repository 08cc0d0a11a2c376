"""Where topics are: what a cluster says of them, and what that means."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.security import Security
from headrace.protocol.api.metadata import MetadataResponsePartition, MetadataResponseTopic
from headrace.protocol.errors import ErrorCode
from headrace.spark.errors import OptionError, SourceUnreachable
from headrace.spark.source.logs import Logs
from headrace.spark.source.options import read_options


class Told(ClusterClient):
    """Says of topics what it was told, one after the other."""

    def __init__(self, *codes: ErrorCode) -> None:
        super().__init__([], Security())
        self._codes = list(codes)

    def topics(self, names: Iterable[str] | None = None) -> list[MetadataResponseTopic]:
        code = self._codes.pop(0) if self._codes else ErrorCode.NONE
        partitions = [] if code else [MetadataResponsePartition(partition_index=0)]
        return [
            MetadataResponseTopic(name=name, error_code=code, partitions=partitions)
            for name in names or ()
        ]


def logs(*codes: ErrorCode) -> Logs:
    return Logs(Told(*codes), read_options({"bootstrap": "nowhere:1", "subscribe": "t"}))


def test_a_topic_without_a_right_to_it_is_not_gone() -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for look in (Logs.initial_partitions, Logs.current_partitions):
        with pytest.raises(SourceUnreachable, match="topic t: Not authorized"):
            look(logs(refused))


def test_a_topic_of_which_nothing_can_be_said_for_now_is_asked_for_again() -> None:
    assert logs(ErrorCode.LEADER_NOT_AVAILABLE).current_partitions() == [("t", 0)]


def test_a_topic_that_is_not_there_is_said_to_be_missing() -> None:
    found = logs(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    with pytest.raises(OptionError, match="there is no topic t"):
        found.initial_partitions()
