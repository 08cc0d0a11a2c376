"""A spool in a database: other nodes take over the jobs of a node that does not come back."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.port import (
    Beat,
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    SpoolChange,
    SpoolContents,
    SpooledJob,
)
from headrace.store.database import CREATE_LOCK, open_database
from headrace.store.errors import StoreError
from headrace.store.schema import COUNTER
from headrace.store.transaction import Transaction

# A node reports this often that it is alive, per time after which it would count as dead.
_BEATS = 10

METADATA = MetaData()
SPOOL = Table(
    "headrace_spool",
    METADATA,
    Column("seq", COUNTER, primary_key=True),
    Column("topic", String, nullable=False),
    Column("id", String, nullable=False),
    Column("node", String, nullable=False),
    Column("value", LargeBinary, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    # Its position in the work topic, once it was sent.
    Column("partition", Integer),
    Column("offset", BigInteger),
    UniqueConstraint("topic", "id"),
    Index("headrace_spool_node", "topic", "node"),
)
NODES = Table(
    "headrace_spool_nodes",
    METADATA,
    Column("topic", String, primary_key=True),
    Column("node", String, primary_key=True),
    Column("seen_ms", BigInteger, nullable=False),
    # How far the node has read TOPIC.done: a JSON object of partitions and offsets.
    Column("done_read", Text, nullable=False),
)

_INSERT = (
    "INSERT INTO headrace_spool (topic, id, node, value, submitted_ms) "
    "VALUES (:topic, :id, :node, :value, :submitted_ms) ON CONFLICT (topic, id) DO NOTHING"
)
_SET_POSITION = (
    'UPDATE headrace_spool SET partition = :partition, "offset" = :offset '
    "WHERE topic = :topic AND id = :id"
)
_DELETE = "DELETE FROM headrace_spool WHERE topic = :topic AND id = :id"
_READ = "UPDATE headrace_spool_nodes SET done_read = :read WHERE topic = :topic AND node = :node"
_SEEN = "UPDATE headrace_spool_nodes SET seen_ms = :now WHERE topic = :topic AND node = :node"
_JOIN = (
    "INSERT INTO headrace_spool_nodes (topic, node, seen_ms, done_read) "
    "VALUES (:topic, :node, :now, :read) ON CONFLICT (topic, node) DO UPDATE SET seen_ms = :now"
)
_REMOVE_DEAD = (
    "DELETE FROM headrace_spool_nodes WHERE topic = :topic AND node <> :node "
    "AND seen_ms < :dead RETURNING done_read"
)
# Also those of a node that was declared dead and has put jobs since.
_ADOPT = (
    "UPDATE headrace_spool SET node = :node WHERE topic = :topic AND node NOT IN "
    "(SELECT node FROM headrace_spool_nodes WHERE topic = :topic)"
)
_OWN = (
    'SELECT id, value, submitted_ms, partition, "offset" FROM headrace_spool '
    "WHERE topic = :topic AND node = :node ORDER BY seq"
)
_KEPT = "SELECT id FROM headrace_spool WHERE topic = :topic AND node = :node"


class TableSpool:
    """The spool of one node in tables that all nodes share; every write is one transaction."""

    def __init__(
        self,
        url: str,
        topic: str,
        *,
        node: str | None = None,
        adopt_after_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        # A node with a fixed name finds its own jobs again without waiting.
        self.node = node or secrets.token_hex(8)
        self._topic = topic
        self._adopt_after_ms = adopt_after_ms
        self._now_ms = now_ms
        self._database = open_database(url)
        self._read: dict[int, int] = {}
        self._beat_ms = 0

    def recover(self) -> SpoolContents:
        """Create missing tables, register this node and return its unfinished jobs."""
        with self._transaction() as tx:
            if tx.kind == "postgresql":
                tx.execute("SELECT pg_advisory_xact_lock(:key)", {"key": CREATE_LOCK})
            METADATA.create_all(tx.connection)
            tx.execute(_JOIN, self._own(now=self._now_ms(), read="{}"))
            known = tx.execute(
                "SELECT done_read FROM headrace_spool_nodes WHERE topic = :topic AND node = :node",
                self._own(),
            )
            self._read = _offsets(known.scalar_one())
            contents = self._own_jobs(tx)
        contents.read = dict(self._read)
        return contents

    def write(self, changes: Sequence[SpoolChange]) -> None:
        """Store changes in one transaction."""
        rows: list[tuple[str, dict[str, Any]]] = []
        read = dict(self._read)
        for change in changes:
            if isinstance(change, DoneRead):
                read[change.partition] = change.next_offset
                continue
            row = {"topic": self._topic, **change._asdict()}
            if isinstance(change, JobPut):
                rows.append((_INSERT, {"node": self.node, **row}))
            elif isinstance(change, JobDone):
                rows.append((_DELETE, row))
            elif isinstance(change, JobSent):
                rows.append((_SET_POSITION, row))
            elif isinstance(change, JobReturned):
                rows.append((_SET_POSITION, {**row, "partition": None, "offset": None}))
        with self._transaction() as tx:
            # In order: one job may end, be put again and be sent in one batch.
            for statement, group in groupby(rows, itemgetter(0)):
                tx.execute(statement, [row for _, row in group])
            if read != self._read:
                tx.execute(_READ, self._own(read=json.dumps(read)))
        self._read = read

    def beat(self, now_ms: int) -> Beat:
        """Report that this node is alive; take over the jobs of nodes that were silent too long."""
        if now_ms - self._beat_ms < self._adopt_after_ms / _BEATS:
            return Beat()
        self._beat_ms = now_ms
        kept = None
        with self._transaction() as tx:
            if not tx.execute(_SEEN, self._own(now=now_ms)).rowcount:
                # The other nodes assumed that this one is dead, and took its jobs.
                kept = frozenset(row.id for row in tx.execute(_KEPT, self._own()))
                tx.execute(_JOIN, self._own(now=now_ms, read=json.dumps(self._read)))
            dead = tx.execute(_REMOVE_DEAD, self._own(dead=now_ms - self._adopt_after_ms)).all()
            before = {row.id for row in tx.execute(_KEPT, self._own())}
            if not tx.execute(_ADOPT, self._own()).rowcount:
                return Beat(None, kept)
            adopted = self._own_jobs(tx)
            for id in before:
                adopted.jobs.pop(id, None)
            for row in dead:
                for partition, next_offset in _offsets(row.done_read).items():
                    known = adopted.read.get(partition, next_offset)
                    adopted.read[partition] = min(known, next_offset)
            for partition, next_offset in adopted.read.items():
                known = self._read.get(partition, next_offset)
                self._read[partition] = min(known, next_offset)
            # A node that takes over from this one has to read from there, too.
            tx.execute(_READ, self._own(read=json.dumps(self._read)))
        return Beat(adopted, kept)

    def close(self) -> None:
        """Give up the unfinished jobs: the next node that beats takes them."""
        try:
            with self._transaction() as tx:
                tx.execute(_SEEN, self._own(now=0))
        finally:
            self._database.engine.dispose()

    def _own_jobs(self, tx: Transaction) -> SpoolContents:
        contents = SpoolContents()
        for row in tx.execute(_OWN, self._own()):
            sent = None if row.partition is None else (row.partition, row.offset)
            contents.jobs[row.id] = SpooledJob(row.id, bytes(row.value), row.submitted_ms, sent)
            contents.value_bytes += len(row.value)
        return contents

    def _own(self, **more: Any) -> dict[str, Any]:
        return {"topic": self._topic, "node": self.node, **more}

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        try:
            with Transaction(self._database, self._now_ms()) as tx:
                yield tx
        except StoreError as error:
            raise SpoolBroken(error.message, error.hint) from error


def _offsets(text: str) -> dict[int, int]:
    return {int(partition): next_offset for partition, next_offset in json.loads(text).items()}
