"""DescribeLogDirs (key 35), v1-4. v2: flexible. v3: an error for the whole response. v4: total and
usable bytes (KIP-827).
"""

from __future__ import annotations

from collections import defaultdict

from headrace.broker.node import Node
from headrace.broker.registry import Context, serves
from headrace.protocol.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.protocol.errors import ErrorCode
from headrace.storage import Log, LogDir
from headrace.storage.dirs.log_move import LogMove

# A topic's name and the description of one of its partitions.
Row = tuple[str, DescribeLogDirsPartition]
UNKNOWN_BYTES = -1


@serves(DescribeLogDirsRequest, 1, 4)
async def describe_log_dirs(
    node: Node, ctx: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """List the partitions of each data folder, their sizes, and the free space."""
    rows: defaultdict[LogDir, list[Row]] = defaultdict(list)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    for log in node.logs:
        if wanted is None or (log.topic, log.partition) in wanted:
            rows[node.logs.dir_of(log)].append((log.topic, _current(log)))
            move = node.logs.moves.get(log)
            if move is not None and not move.has_swapped:
                rows[move.target].append((log.topic, _future(move)))
    return DescribeLogDirsResponse(
        results=[await _describe(node, log_dir, rows[log_dir]) for log_dir in node.logs.dirs]
    )


def _current(log: Log) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=log.partition,
        partition_size=log.size_bytes,
        # How far a replica's end is behind the high watermark; a leader's never is.
        offset_lag=max(log.high_watermark - log.end_offset, 0),
    )


def _future(move: LogMove) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=move.log.partition,
        partition_size=move.copied_bytes,
        offset_lag=move.log.end_offset - move.copied_offset,
        is_future_key=True,
    )


async def _describe(node: Node, log_dir: LogDir, rows: list[Row]) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=log_dir.path)
    if log_dir.offline_error is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    partitions: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for topic, row in rows:
        partitions[topic].append(row)
    result.topics = [
        DescribeLogDirsTopic(name=name, partitions=rows) for name, rows in partitions.items()
    ]
    fs = node.logs.fs
    try:
        # A network file system may be slow.
        result.total_bytes = await node.run_read(fs.total_bytes, log_dir.path)
        result.usable_bytes = await node.run_read(fs.free_bytes, log_dir.path)
    except OSError:
        result.total_bytes = result.usable_bytes = UNKNOWN_BYTES
    return result
