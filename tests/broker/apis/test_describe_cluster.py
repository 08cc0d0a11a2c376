"""DescribeCluster: who is in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.protocol.api.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.errors import ErrorCode


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_this_broker(tmp_path: Path, version: int) -> None:
    async def scenario(asker: Asker) -> None:
        answer = await asker.ask(DescribeClusterRequest(), DescribeClusterResponse, version)
        assert (answer.error_code, answer.controller_id) == (0, 3)
        assert answer.cluster_id == asker.node.catalog.cluster_id
        assert len(answer.cluster_id) == 22
        (broker,) = answer.brokers
        assert (broker.broker_id, broker.host, broker.rack) == (3, "127.0.0.1", None)
        assert broker.port > 0
        assert answer.cluster_authorized_operations == -(2**31)

    with_broker(tmp_path, scenario, {"node.id": 3})


def test_authorized_operations_are_told_when_asked_for(tmp_path: Path) -> None:
    async def scenario(asker: Asker) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await asker.ask(request, DescribeClusterResponse)
        assert answer.cluster_authorized_operations == 0b1_1111_1010_0000

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_endpoints_other_than_brokers_are_refused(
    tmp_path: Path, endpoint: int, code: ErrorCode
) -> None:
    async def scenario(asker: Asker) -> None:
        request = DescribeClusterRequest(endpoint_type=endpoint)
        answer = await asker.ask(request, DescribeClusterResponse)
        assert answer.error_code == code
        assert answer.error_message

    with_broker(tmp_path, scenario)
