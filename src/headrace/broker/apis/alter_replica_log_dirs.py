"""AlterReplicaLogDirs (key 34), v1-2 (KIP-113). v2: flexible.

The response says that a move has started; DescribeLogDirs shows its progress.
"""

from __future__ import annotations

from collections import defaultdict

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@serves(AlterReplicaLogDirsRequest, 1, 2)
async def alter_replica_log_dirs(
    node: Node, ctx: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Move partitions to other data folders; if one is named twice, the last counts."""
    wanted = {
        (topic.name, index): log_dir.path
        for log_dir in request.dirs
        for topic in log_dir.topics
        for index in topic.partitions
    }
    results: defaultdict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for (topic_name, index), error in (await node.mover.alter(wanted)).items():
        results[topic_name].append(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
        )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows)
            for name, rows in results.items()
        ]
    )
