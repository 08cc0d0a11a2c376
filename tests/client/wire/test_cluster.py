"""Asking a real broker by the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.offsets import commit, fill

from headrace.client.wire.cluster import BrokerAddress, ClusterClient, CoordinatorOf
from headrace.client.wire.security import Security
from headrace.protocol.api.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.api.share_fetch import ShareFetchRequest, ShareFetchResponse
from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.testing import BrokerThread


@pytest.fixture
def cluster(broker: BrokerThread) -> Iterator[ClusterClient]:
    servers = [("127.0.0.1", 1), (broker.host, broker.port)]
    with ClusterClient(servers, Security(), timeout_s=10.0) as cluster:
        yield cluster


def test_a_bootstrap_server_that_is_down_is_passed_over(
    cluster: ClusterClient, broker: BrokerThread
) -> None:
    assert cluster.brokers() == [BrokerAddress(1, broker.host, broker.port)]


def test_asking_for_a_topic_does_not_make_it(cluster: ClusterClient) -> None:
    [topic] = cluster.topics(["nowhere"])
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.topics() == []


def test_every_broker_is_asked_for_its_part(cluster: ClusterClient, broker: BrokerThread) -> None:
    fill(broker.bootstrap, "orders", [1])
    commit(broker.bootstrap, "shop", {("orders", 0): 1})
    [(asked, answer)] = cluster.ask_brokers(
        ListGroupsRequest(), ListGroupsResponse, lambda answer: (answer.error_code, None)
    )
    assert asked == cluster.coordinator(CoordinatorOf.GROUP, "shop")
    assert [group.group_id for group in answer.groups] == ["shop"]


def test_a_partition_without_a_leader_is_a_refusal(cluster: ClusterClient) -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="x", partition_indexes=[0])])
    with pytest.raises(KafkaError) as caught:
        cluster.ask_leader(
            "x", 0, request, DescribeProducersResponse, lambda answer: (ErrorCode.NONE, None)
        )
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_connection_that_broke_is_made_anew(cluster: ClusterClient, broker: BrokerThread) -> None:
    [address] = cluster.brokers()
    broker.restart()
    request = ListGroupsRequest()
    with pytest.raises(OSError, match=r"closed|reset|[Bb]roken"):
        cluster.ask_broker(address, request, ListGroupsResponse)
    assert cluster.ask_broker(address, request, ListGroupsResponse).groups == []


def test_a_passing_refusal_is_asked_again_and_a_lasting_one_is_not(cluster: ClusterClient) -> None:
    answers = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    waiting = iter(answers)
    assert cluster.insist(lambda: next(waiting), lambda code: (code, None)) is ErrorCode.NONE
    with pytest.raises(KafkaError, match="very well") as caught:
        cluster.insist(lambda: 68, lambda code: (code, "not very well"))
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(KafkaError, match="error code 9999"):
        cluster.insist(lambda: 9999, lambda code: (code, None))


def test_an_api_that_the_broker_lacks_is_named(cluster: ClusterClient) -> None:
    with pytest.raises(KafkaError, match="no version of ShareFetch") as caught:
        cluster.ask_broker(cluster.brokers()[0], ShareFetchRequest(), ShareFetchResponse)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
