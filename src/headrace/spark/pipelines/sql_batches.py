"""Batches into a table of SQLite or PostgreSQL, each with its id in one transaction: exactly once.

query = df.writeStream.foreachBatch(into_sql("sqlite:///shop.db", "totals", keys=["user"]))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.pipelines.batch_ids import pass_over, query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType
    from sqlalchemy import Connection, Table

    from headrace.store.database import Database

ROWS_PER_STATEMENT = 1000

ForeachBatch = Callable[["DataFrame", int], None]
Mode = Literal["append", "replace"]


def into_sql(
    url: str,
    table: str,
    *,
    keys: Sequence[str] = (),
    deletes: str | None = None,
    mode: Mode = "append",
    name: str | None = None,
) -> ForeachBatch:
    """A function for `foreachBatch` that writes each batch once; the table is made if missing.

    With `keys`, a row takes the place of the one with its keys, and a row whose column `deletes` is
    true removes it. `mode="replace"` empties the table first, for output mode complete. `name` says
    who writes, in place of the query's id, which a new checkpoint changes.
    """
    if deletes is not None and not keys:
        raise SinkError("deletes needs keys: which row is to go?", 'keys=["id"]')

    def write(rows: DataFrame, batch: int) -> None:
        writer = name or query_of(rows)
        with open_sql(url) as database:
            target = SqlTarget(database, table, tuple(keys), deletes, rows.schema)
            target.write(writer, batch, rows, mode)

    return write


class SqlTarget:
    """A table that batches are written to, beside the table of their ids."""

    def __init__(
        self,
        database: Database,
        table: str,
        keys: tuple[str, ...],
        deletes: str | None,
        schema: StructType,
    ) -> None:
        from headrace.spark.pipelines.sql_tables import batch_table, data_table

        self._database = database
        self._keys = keys
        self._deletes = deletes
        self._batches = batch_table()
        self._table = data_table(table, schema, keys, deletes)

    def write(self, writer: str, batch: int, rows: DataFrame, mode: Mode) -> None:
        """Write a batch unless it is there; all of it and its id are visible at once, durable."""
        with self._database.connect() as connection:
            self._create(connection)
            if self._last(connection, writer) == batch:
                pass_over(rows)
                return
            kept = rows.persist()
            try:
                # Spark computes the rows now, while nobody has to wait for the database.
                kept.count()
                found = kept.toLocalIterator(prefetchPartitions=True)
                with self._database.begin(connection, write=True):
                    if self._claim(connection, writer, batch):
                        if mode == "replace":
                            connection.execute(self._table.delete())
                        self._insert(connection, found)
            finally:
                kept.unpersist()

    def _create(self, connection: Connection) -> None:
        with self._database.begin(connection, write=True):
            if self._database.kind == "postgresql":
                # Two that make a table at once would both find it missing.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1751474532)")
            self._batches.create(connection, checkfirst=True)
            self._table.create(connection, checkfirst=True)

    def _last(self, connection: Connection, writer: str) -> int | None:
        with self._database.begin(connection, write=False):
            row = connection.execute(self._entry(writer)).one_or_none()
        return None if row is None else int(row.batch)

    def _claim(self, connection: Connection, writer: str, batch: int) -> bool:
        """Enter the batch; False if it is there. Who claims at the same time waits for the end."""
        entry = {"writer": writer, "target": self._table.name, "batch": batch}
        insert = self._upserting()(self._batches).values(entry)
        claimed = connection.execute(
            insert.on_conflict_do_update(
                index_elements=["writer", "target"],
                set_={"batch": insert.excluded.batch},
                where=self._batches.c.batch < insert.excluded.batch,
            ),
            execution_options={"preserve_rowcount": True},
        )
        if claimed.rowcount:
            return True
        last = int(connection.execute(self._entry(writer)).one().batch)
        if last > batch:
            raise CheckpointTooOld(
                f"the table already holds batch {last}, and the checkpoint is at batch {batch}",
                "restore the newest checkpoint, or start with a new checkpoint and a new table",
            )
        return False

    def _entry(self, writer: str) -> Any:
        of = self._batches.c
        return self._batches.select().where(of.writer == writer, of.target == self._table.name)

    def _insert(self, connection: Connection, rows: Iterator[Row]) -> None:
        from headrace.spark.pipelines.sql_tables import to_values

        while chunk := list(islice(rows, ROWS_PER_STATEMENT)):
            for row in chunk:
                self._check_keys(row)
            if self._keys:
                # Of rows with the same keys the last counts, and one statement takes a key once.
                chunk = list({tuple(row[key] for key in self._keys): row for row in chunk}.values())
            gone = [row for row in chunk if self._deletes and row[self._deletes]]
            here = [row for row in chunk if not (self._deletes and row[self._deletes])]
            if here:
                connection.execute(self._statement(), [to_values(row, self._table) for row in here])
            if gone:
                connection.execute(
                    self._deletion(),
                    [
                        {f"key_{key}": values[key] for key in self._keys}
                        for values in (to_values(row, self._table) for row in gone)
                    ],
                )

    def _check_keys(self, row: Row) -> None:
        missing = [key for key in self._keys if row[key] is None]
        if missing:
            raise SinkError(
                f"a row has no {missing[0]!r}, which is a key of {self._table.name}",
                f'leave such rows out: .where("{missing[0]} IS NOT NULL")',
            )

    def _statement(self) -> Any:
        insert = self._upserting()(self._table)
        if not self._keys:
            return insert
        others = [each.name for each in self._table.columns if each.name not in self._keys]
        if not others:
            return insert.on_conflict_do_nothing(index_elements=list(self._keys))
        return insert.on_conflict_do_update(
            index_elements=list(self._keys),
            set_={name: insert.excluded[name] for name in others},
        )

    def _deletion(self) -> Any:
        from sqlalchemy import and_, bindparam

        table: Table = self._table
        return table.delete().where(
            and_(*(table.c[key] == bindparam(f"key_{key}") for key in self._keys))
        )

    def _upserting(self) -> Any:
        if self._database.kind == "sqlite":
            from sqlalchemy.dialects.sqlite import insert
        else:
            from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
        return insert


class _Opened:
    """A database, closed at the end."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Database:
        return self._database

    def __exit__(self, *_: object) -> None:
        self._database.engine.dispose()


def open_sql(url: str) -> _Opened:
    """The database at this URL, for a `with`; SinkError if SQLAlchemy is missing."""
    try:
        from headrace.store.database import open_database
    except ModuleNotFoundError as missing:
        raise SinkError(
            f"tables need {missing.name}, which is not installed",
            "pip install 'headrace[handlers]'",
        ) from None
    return _Opened(open_database(url))
