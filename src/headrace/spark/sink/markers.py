"""Markers: which batch a task of a query has written last, kept as the offset of a group.

The offset is committed in the transaction of the rows, so both are there or neither. Brokers forget
the offsets of idle groups after `offsets.retention.minutes` (seven days unless changed): a batch
that was interrupted has to be run again before that.
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
MARKED_PARTITION = 0
# The last version that asks for one group; it is also the first that waits for open transactions.
FETCH_ONE_VERSION = 7


def marker_name(query: str, task: int, topic: str | None) -> str:
    """The group, and the transactional id, of a task of a query that writes to a topic.

    None if the rows name their topics. Two topics that one batch is written to have each its own.
    """
    return f"{PREFIX}.{query}.{task}" if topic is None else f"{PREFIX}.{query}.{task}/{topic}"


def is_written(marker: int | None, batch: int) -> bool:
    """Whether a task has written the batch already, by its marker."""
    if marker is not None and marker > batch:
        raise CheckpointTooOld(
            f"the output already holds batch {marker}, and the checkpoint is at batch {batch}",
            "restore the newest checkpoint, or start with a new checkpoint and a new output",
        )
    return marker == batch


def marker_request(name: str, topic: str | None) -> OffsetFetchRequest:
    """Asks the group's coordinator for a marker; what an open transaction holds is refused.

    For that its place is named where it is known: of all places, a broker tells those that have an
    offset, and one whose first is about to be committed is not among them.
    """
    places = topic and [OffsetFetchRequestTopic(name=topic, partition_indexes=[MARKED_PARTITION])]
    return OffsetFetchRequest(group_id=name, topics=places or None, require_stable=True)


def marked(answer: OffsetFetchResponse) -> int | None:
    """The batch that a marker names, or None."""
    # A task whose rows name their topics marks the first of each batch: the newest counts.
    offsets = [row.committed_offset for topic in answer.topics for row in topic.partitions]
    return max((offset for offset in offsets if offset >= 0), default=None)


def marker_error(answer: OffsetFetchResponse) -> int:
    """The first error code in an answer, or 0."""
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    return next(filter(None, (answer.error_code, *codes)), 0)
