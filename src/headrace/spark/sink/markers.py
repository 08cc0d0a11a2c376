"""Markers: which batch a task of a query has written last, kept as the offset of a group.

The offset is committed in the transaction of the rows, so both are written or neither is. Brokers
forget the offsets of idle groups after `offsets.retention.minutes` (seven days by default): a batch
that was interrupted must be rerun before that.
"""

from __future__ import annotations

from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from headrace.spark.errors import CheckpointTooOld

PREFIX = "headrace.sink"
# A marker is an offset of this partition of the topic, whichever partitions the rows go to.
MARKER_PARTITION = 0
# The last version that asks for one group, and the first with require_stable.
FETCH_ONE_VERSION = 7


def marker_name(query: str, task: int, topic: str | None) -> str:
    """The group and transactional id of a task of a query that writes to a topic.

    `topic` is None if the rows name their topics. A batch that is written to two topics has one
    marker for each.
    """
    return f"{PREFIX}.{query}.{task}" if topic is None else f"{PREFIX}.{query}.{task}/{topic}"


def is_written(marker: int | None, batch: int) -> bool:
    """Whether the marker says that a batch is written; CheckpointTooOld if a later one is."""
    if marker is not None and marker > batch:
        raise CheckpointTooOld(
            f"the output already holds batch {marker}, and the checkpoint is at batch {batch}",
            "restore the newest checkpoint, or start with a new checkpoint and a new output",
        )
    return marker == batch


def marker_request(name: str, topic: str | None) -> OffsetFetchRequest:
    """Asks the group's coordinator for a marker; refused while an open transaction changes it.

    The partition is named where it is known. Asked for all partitions, a broker lists those with
    an offset, and would leave out one whose first offset is about to be committed.
    """
    topics = topic and [OffsetFetchRequestTopic(name=topic, partition_indexes=[MARKER_PARTITION])]
    return OffsetFetchRequest(group_id=name, topics=topics or None, require_stable=True)


def marked_batch(answer: OffsetFetchResponse) -> int | None:
    """The batch in a marker, or None if there is no marker."""
    # A task whose rows name their topics marks the first topic of each batch: take the newest.
    offsets = [row.committed_offset for topic in answer.topics for row in topic.partitions]
    return max((offset for offset in offsets if offset >= 0), default=None)


def marker_error(answer: OffsetFetchResponse) -> int:
    """The first error code in a response, or 0."""
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    return next(filter(None, (answer.error_code, *codes)), 0)
