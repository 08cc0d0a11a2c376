"""The spill table: messages that found no room in memory, kept until there is some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.client.message import Message
from headrace.store.columns import pack_headers, plain_id, unpack_headers
from headrace.store.database import array, one_of
from headrace.store.transaction import StoreTable, Transaction

LEASE_MS = 60_000

_PUT = (
    'INSERT INTO headrace_spill (handler, topic, partition, "offset", id, key, value, headers, '
    "timestamp_ms, at_ms, lease_ms) "
    "VALUES ({0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, 0) "
    'ON CONFLICT (handler, topic, partition, "offset") DO NOTHING'
)
_PUTS = {"sqlite": _PUT.format("?"), "postgresql": _PUT.format("%s")}


class Spilled(NamedTuple):
    """A message in the spill, with its number there."""

    seq: int
    message: Message


class Spill(StoreTable):
    """The table; messages of a handler leave it in the order they came."""

    def put(self, tx: Transaction, handler: str, messages: Sequence[Message]) -> None:
        """Store messages within `tx`; one that is already stored stays as it is."""
        rows = [
            (
                handler,
                message.topic,
                message.partition,
                message.offset,
                plain_id(message.id),
                message.key,
                message.value,
                pack_headers(message.headers),
                message.timestamp_ms,
                tx.now_ms,
            )
            for message in messages
        ]
        tx.driver.executemany(_PUTS[tx.kind], rows)

    def take(
        self, handler: str, limit: int, *, owner: str, lease_ms: int = LEASE_MS
    ) -> list[Spilled]:
        """Lease the oldest messages to `owner`; those not done when the lease ends are free again.

        An owner that asks again does not get messages that it already has.
        """
        with self._begin() as tx:
            found = tx.execute(
                "UPDATE headrace_spill SET owner = :owner, lease_ms = :until_ms WHERE seq IN "
                "(SELECT seq FROM headrace_spill WHERE handler = :handler "
                "AND lease_ms <= :now_ms ORDER BY seq LIMIT :limit"
                + (" FOR UPDATE SKIP LOCKED" if tx.kind == "postgresql" else "")
                + ') RETURNING seq, topic, partition, "offset", key, value, headers, '
                "timestamp_ms, id",
                {
                    "handler": handler,
                    "owner": owner,
                    "until_ms": tx.now_ms + lease_ms,
                    "now_ms": tx.now_ms,
                    "limit": limit,
                },
            )
            taken = [
                Spilled(
                    row.seq,
                    Message(
                        row.topic,
                        row.partition,
                        row.offset,
                        row.key,
                        row.value,
                        unpack_headers(row.headers),
                        row.timestamp_ms,
                        row.id,
                    ),
                )
                for row in found
            ]
        return sorted(taken, key=lambda spilled: spilled.seq)

    def done(self, tx: Transaction, seqs: Sequence[int]) -> None:
        """Remove messages within the transaction of their effect."""
        statement = f"DELETE FROM headrace_spill WHERE seq {one_of(tx.kind)}"
        tx.driver.execute(statement, (array(tx.kind, seqs),))

    def release(self, seqs: Sequence[int]) -> None:
        """Give messages back before their lease ends."""
        with self._begin() as tx:
            statement = f"UPDATE headrace_spill SET lease_ms = 0 WHERE seq {one_of(tx.kind)}"
            tx.driver.execute(statement, (array(tx.kind, seqs),))

    def count(self, handler: str) -> int:
        """How many messages of a handler are stored, leased ones included."""
        with self._read() as tx:
            return int(
                tx.execute(
                    "SELECT count(*) FROM headrace_spill WHERE handler = :handler",
                    {"handler": handler},
                ).scalar_one()
            )
