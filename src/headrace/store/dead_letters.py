"""The index of dead letters: messages that were given up, why, and what was done with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    Integer,
    String,
    Table,
    and_,
    case,
    delete,
    func,
    or_,
    select,
    tuple_,
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
# Only the newest can be consumed again after a crash: their offsets were not yet committed.
PLACES_MAX = 10_000

# A letter is NEW until it is in the topic, then DEAD until it is replayed or discarded.
NEW = "new"
DEAD = "dead"
REPLAYED = "replayed"

DEAD_LETTERS = Table(
    "headrace_dead_letters",
    METADATA,
    *message_columns(),
    Column("version", String, nullable=False),
    Column("state", String, nullable=False),
    Column("failed_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("replays", Integer, nullable=False),
    Index("headrace_dead_letters_fingerprint", "fingerprint"),
    Index("headrace_dead_letters_state", "state", "changed_ms"),
    Index("headrace_dead_letters_place", "handler", "topic", "partition", "offset"),
)
_ROW = DEAD_LETTERS.c


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that was given up."""

    handler: str
    message: Message
    attempts: int
    failure: Failure
    version: str
    state: str
    failed_ms: int
    replays: int


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters of one failure."""

    fingerprint: str
    error: str
    place: str
    handler: str
    topic: str
    count: int
    first_ms: int
    last_ms: int


class DeadLetterIndex(StoreTable):
    """The table; every change is durable with the transaction it is made in."""

    def put(self, tx: Transaction, letter: Letter) -> None:
        """Enter a letter, or update one that was replayed and failed again."""
        values = {
            **message_values(letter.handler, letter.message),
            **failure_values(letter.failure, letter.attempts),
            "version": letter.version,
            "state": letter.state,
            "failed_ms": letter.failed_ms,
            "changed_ms": letter.failed_ms,
        }
        insert = insert_into(DEAD_LETTERS, tx.kind).values({**values, "replays": 0})
        is_another = or_(
            _ROW.offset != letter.message.offset, _ROW.partition != letter.message.partition
        )
        replays = _ROW.replays + case((is_another, 1), else_=0)
        tx.execute(
            insert.on_conflict_do_update(
                index_elements=["handler", "id"], set_={**values, "replays": replays}
            )
        )

    def change(self, letters: Sequence[Letter], state: str) -> None:
        """Set the state of letters, except where the message has failed again since."""
        records = [
            (it.handler, plain_id(it.message.id), it.message.partition, it.message.offset)
            for it in letters
        ]
        record = tuple_(_ROW.handler, _ROW.id, _ROW.partition, _ROW.offset)
        with self._begin() as tx:
            tx.execute(
                update(DEAD_LETTERS)
                .where(record.in_(records), _ROW.state != REPLAYED)
                .values(state=state, changed_ms=tx.now_ms)
            )

    def has(self, tx: Transaction, handler: str, message: Message) -> bool:
        """Whether this record is a dead letter; a replay of it is another record."""
        query = select(_ROW.id).where(
            _ROW.handler == handler,
            _ROW.id == plain_id(message.id),
            _ROW.topic == message.topic,
            _ROW.partition == message.partition,
            _ROW.offset == message.offset,
        )
        return tx.execute(query).first() is not None

    def places(self, handler: str, topic: str, partitions: Sequence[int]) -> list[tuple[int, int]]:
        """Partition and offset of the newest letters of these partitions."""
        query = (
            select(_ROW.partition, _ROW.offset)
            .where(_ROW.handler == handler, _ROW.topic == topic, _ROW.partition.in_(partitions))
            .order_by(_ROW.offset.desc())
            .limit(PLACES_MAX)
        )
        with self._read() as tx:
            return [(row.partition, row.offset) for row in tx.execute(query)]

    def unpublished(self, handler: str, before_ms: int, limit: int) -> list[Letter]:
        """Letters that are not in their topic though entered before a time, oldest first."""
        query = (
            select(DEAD_LETTERS)
            .where(_ROW.state == NEW, _ROW.changed_ms <= before_ms, _ROW.handler == handler)
            .order_by(_ROW.changed_ms)
            .limit(limit)
        )
        with self._read() as tx:
            return [_letter(row) for row in tx.execute(query).mappings()]

    def find(
        self, chosen: MessageSelection, *, with_replayed: bool = False, limit: int = LISTED_MAX
    ) -> list[Letter]:
        """The selected letters, oldest first."""
        query = select(DEAD_LETTERS).where(_condition(chosen, with_replayed))
        query = query.order_by(_ROW.failed_ms, _ROW.handler, _ROW.id).limit(limit)
        with self._read() as tx:
            return [_letter(row) for row in tx.execute(query).mappings()]

    def pages(self, chosen: MessageSelection, size: int) -> Iterator[list[Letter]]:
        """The letters selected now, `size` at a time, each once.

        Messages that fail meanwhile are left out: a replay that fails at once must not loop.
        """
        keys = (_ROW.failed_ms, _ROW.handler, _ROW.id)
        condition = _condition(chosen, False)
        with self._read() as tx:
            newest_ms = tx.execute(select(func.max(_ROW.failed_ms)).where(condition)).scalar()
        last: tuple[int, str, str] | None = None
        while newest_ms is not None:
            query = select(DEAD_LETTERS).where(condition, _ROW.failed_ms <= newest_ms)
            if last is not None:
                query = query.where(tuple_(*keys) > tuple_(*last))
            with self._read() as tx:
                rows = tx.execute(query.order_by(*keys).limit(size)).mappings()
                page = [_letter(row) for row in rows]
            if not page:
                return
            last = (page[-1].failed_ms, page[-1].handler, page[-1].message.id)
            yield page

    def groups(self, chosen: MessageSelection) -> list[LetterGroup]:
        """The selected letters by failure, the most frequent first."""
        count = func.count().label("count")
        by = (_ROW.fingerprint, _ROW.place, _ROW.handler, _ROW.topic)
        query = (
            select(
                *by,
                func.max(_ROW.error).label("error"),
                count,
                func.min(_ROW.failed_ms).label("first_ms"),
                func.max(_ROW.failed_ms).label("last_ms"),
            )
            .where(_condition(chosen, False))
            .group_by(*by)
            .order_by(count.desc(), _ROW.fingerprint)
        )
        with self._read() as tx:
            return [LetterGroup(**row) for row in tx.execute(query).mappings()]

    def count(self, chosen: MessageSelection, *, with_replayed: bool = False) -> int:
        """How many letters are selected."""
        query = select(func.count()).select_from(DEAD_LETTERS)
        with self._read() as tx:
            return int(tx.execute(query.where(_condition(chosen, with_replayed))).scalar_one())

    def discard(self, chosen: MessageSelection) -> int:
        """Forget the selected letters, replayed ones too; their records stay in the topic."""
        with self._begin() as tx:
            condition = _condition(chosen, True)
            return tx.execute(delete(DEAD_LETTERS).where(condition)).rowcount


def _condition(chosen: MessageSelection, with_replayed: bool) -> ColumnElement[bool]:
    condition = chosen.condition(DEAD_LETTERS)
    return condition if with_replayed else and_(condition, _ROW.state != REPLAYED)


def _letter(row: Mapping[Any, Any]) -> Letter:
    return Letter(
        handler=row["handler"],
        message=message_of(row),
        attempts=row["attempts"],
        failure=failure_of(row),
        version=row["version"],
        state=row["state"],
        failed_ms=row["failed_ms"],
        replays=row["replays"],
    )
