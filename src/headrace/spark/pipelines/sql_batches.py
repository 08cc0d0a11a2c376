"""Writes batches to SQLite or PostgreSQL exactly once: rows and batch id in one transaction.

query = df.writeStream.foreachBatch(into_sql("sqlite:///shop.db", "totals", keys=["user"]))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from headrace.spark.errors import CheckpointTooOld, SinkError
from headrace.spark.pipelines.foreach_batch import ForeachBatch, query_of, skip_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType
    from sqlalchemy import Connection, Table

    from headrace.store.database import Database

ROWS_PER_STATEMENT = 1000

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
    """A function for `foreachBatch` that writes each batch once; the table is created if missing.

    With `keys`, a row replaces the one with the same keys, and a row whose column `deletes` is true
    deletes it. `mode="replace"` empties the table first, for output mode complete. `name` is the
    writer's id; without it that is the query's, which changes with a new checkpoint.
    """
    if deletes is not None and not keys:
        raise SinkError("deletes needs keys, which say what row to delete", 'keys=["id"]')

    def write(rows: DataFrame, batch: int) -> None:
        writer = name or query_of(rows)
        with open_sql(url) as database:
            target = SqlTarget(database, table, tuple(keys), deletes, rows.schema)
            target.write(writer, batch, rows, mode)

    return write


class SqlTarget:
    """A table that batches are written to, and the table of their ids."""

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
        """Write a batch with its id unless it is written already; durable on return."""
        with self._database.connect() as connection:
            self._create(connection)
            if self._last(connection, writer) == batch:
                skip_batch(rows)
                return
            kept = rows.persist()
            try:
                # Spark computes the rows now, before the transaction locks anything.
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
                # Otherwise two writers could both find the table missing.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(1751474532)")
            self._batches.create(connection, checkfirst=True)
            self._table.create(connection, checkfirst=True)

    def _last(self, connection: Connection, writer: str) -> int | None:
        with self._database.begin(connection, write=False):
            row = connection.execute(self._entry(writer)).one_or_none()
        return None if row is None else int(row.batch)

    def _claim(self, connection: Connection, writer: str, batch: int) -> bool:
        """Record the batch; False if it is written. A concurrent claim waits for the commit."""
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
                # The last row of a key wins, and one statement may contain a key only once.
                chunk = list({tuple(row[key] for key in self._keys): row for row in chunk}.values())
            deleted = [row for row in chunk if self._deletes and row[self._deletes]]
            written = [row for row in chunk if not (self._deletes and row[self._deletes])]
            if written:
                connection.execute(
                    self._statement(), [to_values(row, self._table) for row in written]
                )
            if deleted:
                connection.execute(
                    self._deletion(),
                    [
                        {f"key_{key}": values[key] for key in self._keys}
                        for values in (to_values(row, self._table) for row in deleted)
                    ],
                )

    def _check_keys(self, row: Row) -> None:
        missing = [key for key in self._keys if row[key] is None]
        if missing:
            raise SinkError(
                f"a row has a null in {missing[0]!r}, which is a key of {self._table.name}",
                f'filter such rows: .where("{missing[0]} IS NOT NULL")',
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


@contextmanager
def open_sql(url: str) -> Iterator[Database]:
    """Open the database at a URL for a `with`; SinkError if SQLAlchemy is missing."""
    try:
        from headrace.store.database import open_database
    except ModuleNotFoundError as missing:
        raise SinkError(
            f"tables need {missing.name}, which is not installed",
            "pip install 'headrace[handlers]'",
        ) from None
    database = open_database(url)
    try:
        yield database
    finally:
        database.engine.dispose()
