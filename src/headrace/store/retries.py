"""The retry table: failed messages that wait for their next try, in order by key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    String,
    Table,
    and_,
    case,
    delete,
    exists,
    func,
    select,
    update,
)

from headrace.client.message import Message
from headrace.store.columns import plain_id
from headrace.store.failed_messages import (
    MessageSelection,
    failure_of,
    failure_values,
    insert_into,
    message_columns,
    message_of,
    message_values,
)
from headrace.store.fingerprints import Failure
from headrace.store.schema import METADATA
from headrace.store.transaction import StoreTable, Transaction

LISTED_MAX = 1_000

RETRIES = Table(
    "headrace_retries",
    METADATA,
    *message_columns(),
    # A digest of the key or partition whose messages stay in order; NULL without order.
    Column("lane", String),
    Column("parked_ms", BigInteger, nullable=False),
    Column("next_ms", BigInteger, nullable=False),
    Column("owner", String),
    Column("lease_ms", BigInteger, nullable=False),
    Index("headrace_retries_next", "handler", "next_ms"),
    Index("headrace_retries_lane", "handler", "lane", "offset"),
    Index("headrace_retries_place", "handler", "topic", "partition"),
    Index("headrace_retries_fingerprint", "fingerprint"),
)
_ROW = RETRIES.c
_BEFORE = RETRIES.alias("before")
# Only the first of a lane is ever due. What is behind it waits without a state of its own, so there
# is nothing to wake when the first is removed, and nothing to lose in a crash.
_IS_HEAD = ~exists().where(
    _BEFORE.c.handler == _ROW.handler,
    _BEFORE.c.lane == _ROW.lane,
    _BEFORE.c.offset < _ROW.offset,
)

BEHIND = Failure("behind an earlier message of its key", "", "", "")


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """A message in the retry table; its `owner`, if any, has it until `lease_ms`."""

    handler: str
    message: Message
    attempts: int
    failure: Failure
    parked_ms: int
    next_ms: int
    is_head: bool
    owner: str | None
    lease_ms: int


class Retries(StoreTable):
    """The table; every change is durable with the transaction it is made in."""

    def park(
        self,
        tx: Transaction,
        handler: str,
        message: Message,
        lane: str | None,
        failure: Failure,
        attempts: int,
        next_ms: int,
    ) -> None:
        """Store a failed message; one that is already stored keeps its attempts and its time."""
        values = {
            **message_values(handler, message),
            **failure_values(failure, attempts),
            "lane": lane,
            "parked_ms": tx.now_ms,
            "next_ms": next_ms,
            "lease_ms": 0,
        }
        tx.execute(insert_into(RETRIES, tx.kind).values(values).on_conflict_do_nothing())

    def park_behind(
        self, tx: Transaction, handler: str, message: Message, lane: str | None
    ) -> bool:
        """Store a message whose lane, or which itself, waits here; False if neither does."""
        known = tx.execute(
            select(_ROW.id).where(_ROW.handler == handler, _ROW.id == plain_id(message.id))
        ).first()
        if known is not None:
            return True
        if lane is None:
            return False
        waits_until_ms = tx.execute(
            select(func.max(_ROW.next_ms)).where(_ROW.handler == handler, _ROW.lane == lane)
        ).scalar()
        if waits_until_ms is None:
            return False
        self.park(tx, handler, message, lane, BEHIND, 0, waits_until_ms)
        return True

    def places(
        self, handler: str, topic: str, partitions: Sequence[int]
    ) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and key of what is parked in these partitions, once per lane."""
        # A hot key may have a hundred thousand rows; one of them is enough here.
        alone = case((_ROW.lane.is_(None), _ROW.offset))
        query = (
            select(_ROW.partition, func.min(_ROW.offset), _ROW.key)
            .where(_ROW.handler == handler, _ROW.topic == topic, _ROW.partition.in_(partitions))
            .group_by(_ROW.partition, _ROW.key, _ROW.lane, alone)
        )
        with self._read() as tx:
            return [(partition, offset, key) for partition, offset, key in tx.execute(query)]

    def lease(
        self, handler: str, owner: str, now_ms: int, lease_ms: int, limit: int
    ) -> list[ParkedMessage]:
        """Lease up to `limit` due messages, at most one of a lane."""
        is_due = and_(
            _ROW.handler == handler, _ROW.next_ms <= now_ms, _ROW.lease_ms <= now_ms, _IS_HEAD
        )
        # A read first: a write transaction would make every other writer wait.
        with self._read() as tx:
            if tx.execute(select(_ROW.id).where(is_due).limit(1)).first() is None:
                return []
        query = select(RETRIES).where(is_due).order_by(_ROW.next_ms, _ROW.offset).limit(limit)
        with self._begin() as tx:
            # Rows that other processes lock for a moment are skipped.
            found = tx.execute(query.with_for_update(skip_locked=True, of=RETRIES)).mappings()
            taken = [_parked({**row, "owner": owner, "is_head": True}) for row in found]
            ids = [parked.message.id for parked in taken]
            tx.execute(
                update(RETRIES)
                .where(_ROW.handler == handler, _ROW.id.in_(ids))
                .values(owner=owner, lease_ms=now_ms + lease_ms)
            )
        return taken

    def renew(self, handler: str, owner: str, until_ms: int) -> None:
        """Extend the leases of an owner."""
        with self._begin() as tx:
            tx.execute(_of_owner(handler, owner).values(lease_ms=until_ms))

    def release(self, handler: str, owner: str) -> None:
        """Give back an owner's leases."""
        with self._begin() as tx:
            tx.execute(_of_owner(handler, owner).values(owner=None, lease_ms=0))

    def postpone(
        self, tx: Transaction, parked: ParkedMessage, failure: Failure, next_ms: int
    ) -> bool:
        """Count a failed try and set the time of the next; False if the lease was lost."""
        changed = tx.execute(
            update(RETRIES)
            .where(_is_leased(parked))
            .values(
                **failure_values(failure, parked.attempts + 1),
                next_ms=next_ms,
                owner=None,
                lease_ms=0,
            )
        )
        return changed.rowcount == 1

    def remove(self, tx: Transaction, parked: ParkedMessage) -> bool:
        """Remove a message in the transaction of its effect.

        False if the lease was lost; then the effect must be rolled back too.
        """
        return tx.execute(delete(RETRIES).where(_is_leased(parked))).rowcount == 1

    def next_due_ms(self, handler: str) -> int | None:
        """When the next message is due and free of leases; None for an empty table."""
        is_leased = _ROW.lease_ms > _ROW.next_ms
        is_head = and_(_ROW.handler == handler, _IS_HEAD)
        free = select(_ROW.next_ms).where(is_head, ~is_leased).order_by(_ROW.next_ms).limit(1)
        leased = select(func.min(_ROW.lease_ms)).where(is_head, is_leased)
        with self._read() as tx:
            free_ms = tx.execute(free).scalar()
            if free_ms is not None:
                # The end of a lease matters only if it comes before a free message is due.
                leased = leased.where(_ROW.next_ms < free_ms)
            ends_ms = tx.execute(leased).scalar()
        return min((int(it) for it in (free_ms, ends_ms) if it is not None), default=None)

    def find(self, chosen: MessageSelection, limit: int = LISTED_MAX) -> list[ParkedMessage]:
        """The selected messages, the next due first."""
        query = (
            select(RETRIES, _IS_HEAD.label("is_head"))
            .where(chosen.condition(RETRIES))
            .order_by(_ROW.next_ms, _ROW.offset)
            .limit(limit)
        )
        with self._read() as tx:
            return [_parked(row) for row in tx.execute(query).mappings()]

    def count(self, chosen: MessageSelection) -> int:
        """How many messages are parked."""
        with self._read() as tx:
            query = select(func.count()).select_from(RETRIES).where(chosen.condition(RETRIES))
            return int(tx.execute(query).scalar_one())

    def make_due(self, chosen: MessageSelection, now_ms: int) -> int:
        """Make the selected messages due; those behind another still wait for it."""
        with self._begin() as tx:
            condition = and_(chosen.condition(RETRIES), _ROW.next_ms > now_ms)
            return tx.execute(update(RETRIES).where(condition).values(next_ms=now_ms)).rowcount

    def drop(self, chosen: MessageSelection) -> int:
        """Forget the selected messages; one that runs right now is rolled back."""
        with self._begin() as tx:
            return tx.execute(delete(RETRIES).where(chosen.condition(RETRIES))).rowcount


def lane_digest(topic: str, partition: int, key: bytes | None) -> str:
    """The lane of a key, or of a whole partition, short enough for any index."""
    digest = hashlib.blake2b(f"{topic}/{partition}/".encode(), digest_size=16)
    if key is not None:
        digest.update(b"key/" + key)
    return digest.hexdigest()


def _of_owner(handler: str, owner: str) -> Any:
    return update(RETRIES).where(_ROW.handler == handler, _ROW.owner == owner)


def _is_leased(parked: ParkedMessage) -> ColumnElement[bool]:
    return and_(
        _ROW.handler == parked.handler,
        _ROW.id == parked.message.id,
        _ROW.owner == parked.owner,
    )


def _parked(row: Mapping[Any, Any]) -> ParkedMessage:
    return ParkedMessage(
        handler=row["handler"],
        message=message_of(row),
        attempts=row["attempts"],
        failure=failure_of(row),
        parked_ms=row["parked_ms"],
        next_ms=row["next_ms"],
        is_head=bool(row["is_head"]),
        owner=row["owner"],
        lease_ms=row["lease_ms"],
    )
