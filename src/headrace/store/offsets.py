"""The offset table: places kept in the handler's own transaction, fenced by an epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition
from headrace.store.errors import Fenced, StoreError
from headrace.store.transaction import Transaction

_SAVE = (
    "UPDATE headrace_offsets SET next_offset = {0}, at_ms = {0} "
    "WHERE consumer_group = {0} AND topic = {0} AND partition = {0} AND epoch = {0} "
    "AND (next_offset IS NULL OR next_offset <= {0})"
)
_SAVES = {"sqlite": _SAVE.format("?"), "postgresql": _SAVE.format("%s")}
_OFFSET_MAX = (1 << 63) - 1


class AlreadySaved(StoreError):
    """This owner has saved the messages before `next_offset`, though it was not told so."""

    def __init__(self, place: TopicPartition, next_offset: int) -> None:
        super().__init__(f"{place[0]}/{place[1]} is done up to {next_offset} already")
        self.place = place
        self.next_offset = next_offset


class StoredOffset(NamedTuple):
    """Where a group is in a partition (None: nowhere yet), and the epoch of its owner.

    A save may say in `first` where its messages begin: it is refused if they are saved already.
    """

    next_offset: int | None
    epoch: int
    first: int | None = None


class OffsetTable:
    """Next offsets by group and partition."""

    def __init__(self, begin: Callable[[], Transaction], read: Callable[[], Transaction]) -> None:
        self._begin = begin
        self._read = read

    def load(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, StoredOffset]:
        """Become the owner of these partitions and return where to go on.

        Each gets a new epoch, so whatever an earlier owner still tries to save is refused.
        """
        with self._begin() as tx:
            # In one order, so that two owners-to-be do not wait for each other.
            return {key: _own(tx, group, *key) for key in sorted(set(partitions))}

    def save(
        self, tx: Transaction, group: str, places: Mapping[TopicPartition, StoredOffset]
    ) -> None:
        """Move on within `tx`; raises Fenced when a partition has a newer owner.

        AlreadySaved: a COMMIT took place though its answer was lost, and its messages came again.
        """
        cursor = tx.driver
        statement = _SAVES[tx.kind]
        for (topic, partition), place in sorted(places.items()):
            first = _OFFSET_MAX if place.first is None else place.first
            row = (place.next_offset, tx.now_ms, group, topic, partition, place.epoch, first)
            if cursor.execute(statement, row).rowcount != 1:
                saved = _saved(tx, group, topic, partition, place.epoch)
                if saved is not None:
                    raise AlreadySaved((topic, partition), saved)
                raise Fenced(
                    f"group {group} has a newer owner of {topic}/{partition} than this one",
                    "the new owner goes on from the last place that was saved",
                )

    def peek(self, group: str) -> dict[TopicPartition, StoredOffset]:
        """All places of a group, without becoming their owner."""
        with self._read() as tx:
            found = tx.execute(
                "SELECT topic, partition, next_offset, epoch FROM headrace_offsets "
                "WHERE consumer_group = :group ORDER BY topic, partition",
                {"group": group},
            )
            return {
                (row.topic, row.partition): StoredOffset(row.next_offset, row.epoch)
                for row in found
            }


def _saved(tx: Transaction, group: str, topic: str, partition: int, epoch: int) -> int | None:
    """The next offset that the owner of this epoch has saved; None when it is the owner no more."""
    found: int | None = tx.execute(
        "SELECT next_offset FROM headrace_offsets WHERE consumer_group = :group "
        "AND topic = :topic AND partition = :partition AND epoch = :epoch",
        {"group": group, "topic": topic, "partition": partition, "epoch": epoch},
    ).scalar()
    return found


def _own(tx: Transaction, group: str, topic: str, partition: int) -> StoredOffset:
    row = tx.execute(
        "INSERT INTO headrace_offsets (consumer_group, topic, partition, epoch, at_ms) "
        "VALUES (:group, :topic, :partition, 1, :now_ms) "
        "ON CONFLICT (consumer_group, topic, partition) "
        "DO UPDATE SET epoch = headrace_offsets.epoch + 1 RETURNING next_offset, epoch",
        {"group": group, "topic": topic, "partition": partition, "now_ms": tx.now_ms},
    ).one()
    return StoredOffset(row.next_offset, row.epoch)
