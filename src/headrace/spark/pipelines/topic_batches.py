"""Writes batches to a topic exactly once: a rerun batch gives each task the rows it had before.

For that, rows are partitioned by key among a fixed number of tasks, and this task layout is kept in
the checkpoint together with a fingerprint of the plan. Rows that a rerun could compute differently
(a table that is read again, a random number, a sum whose last digit depends on the order) could
reach other tasks and be lost or doubled, so these are saved in the checkpoint as well.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.spark.errors import PlanChanged, SinkError
from headrace.spark.pipelines.foreach_batch import query_of, skip_batch, write_batches
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.plans import (
    are_from_single_records,
    may_change,
    plan_fingerprint,
    plan_text,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LAYOUT_FILE = "headrace-pin.json"
ROWS_FOLDER = "headrace-rows"
TOPIC_BY_ROW = "by row"


def exactly_once(
    rows: DataFrame,
    *,
    tasks: int,
    key: str | Column | Sequence[str],
    checkpoint: str,
    options: Mapping[str, str],
    output_mode: str = "append",
    repin: bool = False,
) -> DataStreamWriter:
    """A stream writer into a topic whose rows reach the same tasks in every run of a batch.

    `key` is the column or columns that partition the rows among `tasks` tasks; `options` are the
    sink's. Rows that a rerun could change are saved in the checkpoint before they are written.
    PlanChanged if the checkpoint was written with another plan.
    """
    from pyspark.sql import Column

    columns = (key,) if isinstance(key, str | Column) else tuple(key)
    missing = [name for name in columns if isinstance(name, str) and name not in rows.columns]
    if missing or not columns or tasks < 1:
        wrong = f"there is no column {missing[0]!r}" if missing else "a key and tasks are needed"
        raise SinkError(
            f"rows cannot be partitioned: {wrong}", f"columns: {', '.join(rows.columns)}"
        )
    plan = rows._jdf.queryExecution().analyzed()
    text = plan_text(plan, rows)
    by_name = {name.lower(): value for name, value in options.items()}
    topic = by_name.get("topic", TOPIC_BY_ROW)
    layout = TaskLayout(tasks, tuple(map(str, columns)), plan_fingerprint(text), topic)
    check_layout(HadoopFiles(rows.sparkSession), checkpoint, layout, repin=repin)
    # A row with a key of single records reaches the same task whatever else it holds. A row that is
    # partitioned by itself, or by an aggregate, must not change at all.
    named = [name for name in columns if isinstance(name, str) and name != "value"]
    is_by_key = len(named) == len(columns) and are_from_single_records(plan, named)
    must_save = may_change(plan, text, is_by_key=is_by_key)

    def write(batch_rows: DataFrame, batch: int) -> None:
        found = saved_rows(batch_rows, checkpoint, batch) if must_save else batch_rows
        job = found.repartition(tasks, *columns).write.format("headrace").options(**options)
        job.option("id", query_of(batch_rows)).option("batch", str(batch)).mode("append").save()

    if output_mode == "append" and not must_save:
        writer = rows.repartition(tasks, *columns).writeStream.format("headrace").options(**options)
    else:
        # Spark supports output modes other than append in Python sinks only through foreachBatch.
        writer = write_batches(rows, write)
    return writer.outputMode(output_mode).option("checkpointLocation", checkpoint)


@dataclass(frozen=True, slots=True)
class TaskLayout:
    """How rows reach tasks: the number of tasks, the key, the plan's fingerprint and the topic."""

    tasks: int
    key: tuple[str, ...]
    plan: str
    topic: str = TOPIC_BY_ROW

    def to_json(self) -> str:
        """The layout as the checkpoint keeps it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskLayout:
        """The layout from a checkpoint."""
        found = json.loads(text)
        topic = str(found.get("topic", TOPIC_BY_ROW))
        return cls(int(found["tasks"]), tuple(found["key"]), str(found["plan"]), topic)


def check_layout(
    files: HadoopFiles, checkpoint: str, layout: TaskLayout, *, repin: bool = False
) -> None:
    """Save the layout in a new checkpoint; PlanChanged if an old one has a different layout.

    With `repin` a changed layout is accepted, unless a batch is half written.
    """
    path = f"{checkpoint}/{LAYOUT_FILE}"
    known = files.read_text(path)
    if known is None:
        changes = ["the checkpoint has no plan"]
    else:
        changes = differences(TaskLayout.from_json(known), layout)
    if changes:
        half = open_batch(
            files.names(f"{checkpoint}/offsets"), files.names(f"{checkpoint}/commits")
        )
        if half is not None:
            raise PlanChanged(
                f"{'; '.join(changes)}, and batch {half} is half written",
                "run the old code until that batch is finished, or replay into a new output",
            )
        if known is not None and not repin:
            raise PlanChanged(
                f"{'; '.join(changes)}: the checkpoint {checkpoint} was written with another plan",
                "no batch is half written, so --repin (repin=True) accepts the new plan; "
                "results of old and new code then mix in one output, unlike with a replay",
            )
        files.write_text(path, layout.to_json())


def differences(kept: TaskLayout, now: TaskLayout) -> list[str]:
    """How two layouts differ, in words."""
    found = []
    if kept.tasks != now.tasks:
        found.append(f"tasks were {kept.tasks} and are {now.tasks}")
    if kept.key != now.key:
        found.append(f"the key was {', '.join(kept.key)} and is {', '.join(now.key)}")
    if kept.topic != now.topic:
        found.append(f"the topic was {kept.topic} and is {now.topic}")
    if kept.plan != now.plan:
        found.append("the query's plan has changed")
    return found


def open_batch(offsets: Sequence[str], commits: Sequence[str]) -> int | None:
    """The batch that a checkpoint has begun and not finished, from the names of its files."""
    begun, done = (
        max((int(name) for name in names if name.isdigit()), default=-1)
        for names in (offsets, commits)
    )
    return begun if begun > done else None


def saved_rows(rows: DataFrame, checkpoint: str, batch: int) -> DataFrame:
    """The rows that the first run of this batch computed, saved in the checkpoint for any rerun."""
    files = HadoopFiles(rows.sparkSession)
    folder = f"{checkpoint}/{ROWS_FOLDER}"
    target = f"{folder}/{batch}"
    if files.exists(target):
        skip_batch(rows)
    else:
        # Earlier batches are written by now, or this one would not have begun.
        files.remove(folder)
        aside = f"{folder}/_unfinished-{uuid.uuid4().hex}"
        rows.write.parquet(aside)
        files.move(aside, target)
    return rows.sparkSession.read.schema(rows.schema).parquet(target)
