"""Pins: how rows reach the tasks of a sink, kept beside a checkpoint and held to.

A batch that is run again must give each task the rows it had. So the rows are parted by key among a
number of tasks that does not change, and a fingerprint of the plan is kept in the checkpoint.
Where the rows themselves could change, they are kept there too.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.spark.errors import PlanChanged, SinkError
from headrace.spark.pipelines.batch_ids import query_of
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.kept_rows import keep, may_change
from headrace.spark.pipelines.plan_keys import are_settled
from headrace.spark.pipelines.way_back import by_batches
from headrace.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FILE = "headrace-pin.json"
BY_ROW = "by row"
# Spark's setting for how much of a plan it prints, 25 columns unless told; a pin is of all of it.
_FIELDS_MAX = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = str(2**31 - 1)
_printing = threading.Lock()
# What a plan's text has that is another in every run: ids of expressions, objects and nodes, the
# numbers of lambda variables, and how a source is read, which does not decide where rows go.
_EXPRESSION = re.compile(r"#(\d+)L?")
_OBJECT = re.compile(r"@[0-9a-f]{4,}|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_LAMBDA = re.compile(r"\b(lambda \w+)_\d+(?=#)")
_SOURCE = re.compile(r"^(.*?Streaming\w*Relation\w*).*?(\[[^\[\]]*\])?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pin:
    """How many tasks write to which topic, the key that parts rows, the plan's fingerprint."""

    tasks: int
    key: tuple[str, ...]
    plan: str
    topic: str = BY_ROW

    def to_json(self) -> str:
        """As it is kept."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Pin:
        """As it was kept."""
        found = json.loads(text)
        topic = str(found.get("topic", BY_ROW))
        return cls(int(found["tasks"]), tuple(found["key"]), str(found["plan"]), topic)


def differences(kept: Pin, now: Pin) -> list[str]:
    """In what two pins differ, in words."""
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


def plan_fingerprint(plan: str) -> str:
    """The fingerprint of a plan's text, the same for the same query in another run."""
    names: dict[str, str] = {}
    text = _LAMBDA.sub(r"\1", _SOURCE.sub(r"\1 \2", plan))
    text = _EXPRESSION.sub(lambda found: names.setdefault(found[1], f"#{len(names)}"), text)
    return hashlib.sha256(_OBJECT.sub("", text).encode()).hexdigest()[:32]


def plan_text(plan: Any, rows: DataFrame) -> str:
    """A plan in words, with every column that it has."""
    settings = rows.sparkSession.conf
    # The setting is the session's, and pipelines in threads may share one.
    with _printing:
        activate(rows.sparkSession)
        before = settings.get(_FIELDS_MAX)
        settings.set(_FIELDS_MAX, _ALL_FIELDS)
        try:
            return str(plan.toString())
        finally:
            settings.set(_FIELDS_MAX, str(before))


def open_batch(offsets: Sequence[str], commits: Sequence[str]) -> int | None:
    """The batch that a checkpoint has begun and not finished, from the names of its files."""
    begun, done = (
        max((int(name) for name in names if name.isdigit()), default=-1)
        for names in (offsets, commits)
    )
    return begun if begun > done else None


def hold(files: HadoopFiles, checkpoint: str, pin: Pin, *, repin: bool = False) -> None:
    """Keep a new checkpoint's pin and hold an old one to its own; PlanChanged if it differs.

    With `repin` a changed pin is taken, unless a batch is half done.
    """
    path = f"{checkpoint}/{FILE}"
    known = files.read_text(path)
    changes = ["it has no pin"] if known is None else differences(Pin.from_json(known), pin)
    if changes:
        half = open_batch(
            files.names(f"{checkpoint}/offsets"), files.names(f"{checkpoint}/commits")
        )
        if half is not None:
            raise PlanChanged(
                f"{'; '.join(changes)}, and batch {half} is half written",
                "run it as it was until that batch is finished, or replay into a new output",
            )
        if known is not None and not repin:
            raise PlanChanged(
                f"{'; '.join(changes)}: the checkpoint {checkpoint} was written with another plan",
                "no batch is half written, so --repin (repin=True) takes the new plan; "
                "results of old and new code then mix in one output, unlike with a replay",
            )
        files.write_text(path, pin.to_json())


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

    `key` is the column or columns that part the rows among so many tasks; `options` are the sink's.
    Rows that another run of the batch could change are kept beside the checkpoint before they are
    written. PlanChanged if the checkpoint was written with another plan.
    """
    from pyspark.sql import Column

    columns = (key,) if isinstance(key, str | Column) else tuple(key)
    missing = [name for name in columns if isinstance(name, str) and name not in rows.columns]
    if missing or not columns or tasks < 1:
        wrong = f"there is no column {missing[0]!r}" if missing else "a key and tasks are needed"
        raise SinkError(f"rows cannot be parted: {wrong}", f"columns: {', '.join(rows.columns)}")
    plan = rows._jdf.queryExecution().analyzed()
    text = plan_text(plan, rows)
    by_name = {name.lower(): value for name, value in options.items()}
    topic = by_name.get("topic", BY_ROW)
    pin = Pin(tasks, tuple(map(str, columns)), plan_fingerprint(text), topic)
    hold(HadoopFiles(rows.sparkSession), checkpoint, pin, repin=repin)
    # A key's rows go to its task whatever else they hold; what is parted by itself, or by what was
    # computed over several rows, must not change.
    named = [name for name in columns if isinstance(name, str) and name != "value"]
    is_by_key = len(named) == len(columns) and are_settled(plan, named)
    must_keep = may_change(plan, text, is_by_key=is_by_key)

    def write(part: DataFrame, batch: int) -> None:
        found = keep(part, checkpoint, batch) if must_keep else part
        job = found.repartition(tasks, *columns).write.format("headrace").options(**options)
        job.option("id", query_of(part)).option("batch", str(batch)).mode("append").save()

    if output_mode == "append" and not must_keep:
        writer = rows.repartition(tasks, *columns).writeStream.format("headrace").options(**options)
    else:
        # Spark lets sinks in Python take other modes than append only as batches of their own.
        writer = by_batches(rows, write)
    return writer.outputMode(output_mode).option("checkpointLocation", checkpoint)
