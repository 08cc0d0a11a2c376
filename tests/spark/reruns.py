"""Running queries to their end, and making Spark run a batch again as after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

END_SECONDS = 100


def run_to_end(writer: DataStreamWriter) -> StreamingQuery:
    """Run a query over all that is there now."""
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(END_SECONDS), "the query did not end"
    finally:
        query.stop()
    return query


def forget_last_batch(checkpoint: Path) -> int:
    """Take back that the last batch was finished: the driver was killed before it noted so."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last
