"""Rows on their way to topics: what of an Arrow batch goes where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow.compute as pc

from headrace.spark.errors import SinkError

COLUMNS = ("key", "value", "headers", "partition")


def by_topic(batches: Iterable[Any], topic: str | None) -> Iterator[tuple[str, Any]]:
    """The rows of Arrow batches with their topics, in their order within each topic.

    A topic that is given counts for all rows, as in the official connector.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = batch.select([name for name in COLUMNS if name in batch.schema.names])
        if topic is not None:
            yield topic, rows
            continue
        topics = batch.column("topic")
        if topics.null_count:
            raise SinkError("a row names no topic", "topic must not be null, or give option topic")
        for name in topics.unique().to_pylist():
            yield name, rows.filter(pc.equal(topics, name))
