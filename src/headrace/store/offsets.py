"""The offset table: offsets saved in the handler's own transaction, fenced by an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.protocol.partitions import TopicPartition
from headrace.store.errors import Fenced, StoreError
from headrace.store.transaction import StoreTable, Transaction

_SAVE = (
    "UPDATE headrace_offsets SET next_offset = {0}, at_ms = {0} "
    "WHERE consumer_group = {0} AND topic = {0} AND partition = {0} AND epoch = {0} "
    "AND (next_offset IS NULL OR next_offset <= {0})"
)
_SAVES = {"sqlite": _SAVE.format("?"), "postgresql": _SAVE.format("%s")}
_OFFSET_MAX = (1 << 63) - 1


class AlreadySaved(StoreError):
    """This owner has already saved the messages before `next_offset`; the answer was lost."""

    def __init__(self, place: TopicPartition, next_offset: int) -> None:
        super().__init__(f"{place[0]}/{place[1]} is already done up to {next_offset}")
        self.place = place
        self.next_offset = next_offset


class StoredOffset(NamedTuple):
    """A group's next offset in a partition (None: not saved yet), and its owner's epoch.

    A save may give the offset of its `first` message; it is refused if that is saved already.
    """

    next_offset: int | None
    epoch: int
    first: int | None = None


class OffsetTable(StoreTable):
    """Next offsets by group and partition."""

    def load(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, StoredOffset]:
        """Become the owner of these partitions and return where to continue.

        Each gets a new epoch, so saves of earlier owners are refused.
        """
        with self._begin() as tx:
            # In one order, so that two new owners do not deadlock.
            return {key: _own(tx, group, *key) for key in sorted(set(partitions))}

    def save(
        self, tx: Transaction, group: str, places: Mapping[TopicPartition, StoredOffset]
    ) -> None:
        """Save offsets within `tx`; raises Fenced when a partition has a newer owner.

        Raises AlreadySaved when an earlier COMMIT succeeded but its answer was lost.
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
                    f"another process of group {group} has taken over {topic}/{partition}",
                    "it continues from the last saved offset",
                )

    def peek(self, group: str) -> dict[TopicPartition, StoredOffset]:
        """All stored offsets of a group, without becoming their owner."""
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
    """The next offset that the owner of this epoch has saved; None if it was replaced."""
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
