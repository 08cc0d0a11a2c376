"""Rows of a batch that are kept beside the checkpoint, for a batch that is run again to write.

A table that is read anew, a random number, a sum whose last digit depends on who came first: what
another run would make of them could reach other tasks than before, and be lost or doubled.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

from headrace.spark.pipelines.batch_ids import pass_over
from headrace.spark.pipelines.hadoop_files import HadoopFiles
from headrace.spark.pipelines.plan_keys import each_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDER = "headrace-rows"
# Leaves of a plan that do not stream and are always the same.
_CONSTANT = ("LocalRelation", "OneRowRelation", "Range")
# What these make of rows may depend on the order in which the rows come; the first choose among
# whole rows, the others compute values for a key.
_CHOOSES = re.compile(r"\b(Deduplicate\w*|GlobalLimit|LocalLimit|Offset|Tail|Sample)\b")
_BY_ORDER = re.compile(r"\b(Aggregate|Window|\w*Groups?\w*|TransformWith\w+)\b")


def may_change(plan: Any, text: str, *, is_by_key: bool) -> bool:
    """Whether another run of a batch may give tasks other rows, by its analysed plan and its text.

    Python functions are taken at their word that the same arguments give the same result.
    """
    for each in (plan, *each_of(plan.subqueriesAll())):
        if not each.deterministic():
            return True
        leaves = [leaf for leaf in each_of(each.collectLeaves()) if not leaf.isStreaming()]
        if any(leaf.nodeName() not in _CONSTANT for leaf in leaves):
            return True
    return bool(_CHOOSES.search(text) or (not is_by_key and _BY_ORDER.search(text)))


def keep(rows: DataFrame, checkpoint: str, batch: int) -> DataFrame:
    """The rows as the first run of this batch made them, in files that any run finds again."""
    files = HadoopFiles(rows.sparkSession)
    folder = f"{checkpoint}/{FOLDER}"
    target = f"{folder}/{batch}"
    if files.exists(target):
        pass_over(rows)
    else:
        # Earlier batches are written by now, or this one would not have begun.
        files.remove(folder)
        aside = f"{folder}/_unfinished-{uuid.uuid4().hex}"
        rows.write.parquet(aside)
        files.move(aside, target)
    return rows.sparkSession.read.schema(rows.schema).parquet(target)
