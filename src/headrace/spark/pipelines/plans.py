"""Spark's analysed plans: their fingerprint, and whether a rerun could give tasks other rows."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark prints 25 columns of a plan by default; a fingerprint needs all of them.
_FIELDS_MAX = "spark.sql.debug.maxToStringFields"
_ALL_FIELDS = str(2**31 - 1)
_printing = threading.Lock()
# The parts of a plan's text that differ in every run: ids of expressions, objects and nodes, the
# numbers of lambda variables, and how a source is read, which does not decide where rows go.
_EXPRESSION = re.compile(r"#(\d+)L?")
_OBJECT = re.compile(r"@[0-9a-f]{4,}|\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_LAMBDA = re.compile(r"\b(lambda \w+)_\d+(?=#)")
_SOURCE = re.compile(r"^(.*?Streaming\w*Relation\w*).*?(\[[^\[\]]*\])?$", re.MULTILINE)

# Leaves of a plan that do not stream and never change.
_CONSTANT = ("LocalRelation", "OneRowRelation", "Range")
# Nodes whose result may depend on the order of their rows: the first choose among whole rows, the
# others compute values for a key.
_CHOOSES = re.compile(r"\b(Deduplicate\w*|GlobalLimit|LocalLimit|Offset|Tail|Sample)\b")
_BY_ORDER = re.compile(r"\b(Aggregate|Window|\w*Groups?\w*|TransformWith\w+)\b")

# Expressions over several rows: the order of rows decides ties, and the last digit of a sum.
_OVER_ROWS = ("AggregateExpression", "WindowExpression", "PythonUDAF")
# Nodes that give new names to expressions, and the method that lists these.
_NAMING = {
    "Project": "projectList",
    "Aggregate": "aggregateExpressions",
    "Window": "windowExpressions",
}


def plan_text(plan: Any, rows: DataFrame) -> str:
    """The text of a plan, with all of its columns."""
    settings = rows.sparkSession.conf
    # The setting belongs to the session, which pipelines in other threads may share.
    with _printing:
        activate(rows.sparkSession)
        before = settings.get(_FIELDS_MAX)
        settings.set(_FIELDS_MAX, _ALL_FIELDS)
        try:
            return str(plan.toString())
        finally:
            settings.set(_FIELDS_MAX, str(before))


def plan_fingerprint(text: str) -> str:
    """The fingerprint of a plan's text; the same query has the same one in every run."""
    names: dict[str, str] = {}
    text = _LAMBDA.sub(r"\1", _SOURCE.sub(r"\1 \2", text))
    text = _EXPRESSION.sub(lambda found: names.setdefault(found[1], f"#{len(names)}"), text)
    return hashlib.sha256(_OBJECT.sub("", text).encode()).hexdigest()[:32]


def may_change(plan: Any, text: str, *, is_by_key: bool) -> bool:
    """Whether a rerun of a batch may give tasks other rows, by its plan and the plan's text.

    Python functions are trusted to give the same result for the same arguments.
    """
    for each in (plan, *_elements(plan.subqueriesAll())):
        if not each.deterministic():
            return True
        leaves = [leaf for leaf in _elements(each.collectLeaves()) if not leaf.isStreaming()]
        if any(leaf.nodeName() not in _CONSTANT for leaf in leaves):
            return True
    return bool(_CHOOSES.search(text) or (not is_by_key and _BY_ORDER.search(text)))


def are_from_single_records(plan: Any, names: Sequence[str]) -> bool:
    """Whether each of these columns is computed from single records, and not from several.

    Each is followed down to the columns of a source. What cannot be followed (unions, the results
    of functions over groups) counts as computed from several.
    """
    named: dict[int, Any] = {}
    sources: set[int] = set()
    for node in _nodes(plan):
        kind = _kind(node)
        if kind == "Union":
            return False
        if kind in _NAMING:
            for each in _elements(getattr(node, _NAMING[kind])()):
                if _kind(each) == "Alias":
                    named[each.exprId().id()] = each.child()
        if node.children().size() == 0:
            sources |= {each.exprId().id() for each in _elements(node.output())}

    def is_single(expression: Any) -> bool:
        kind = _kind(expression)
        if kind in _OVER_ROWS:
            return False
        if kind == "AttributeReference":
            number = expression.exprId().id()
            return is_single(named[number]) if number in named else number in sources
        return all(map(is_single, _elements(expression.children())))

    outputs = {each.name().lower(): each for each in _elements(plan.output())}
    return all(name.lower() in outputs and is_single(outputs[name.lower()]) for name in names)


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _elements(plan.children()):
        yield from _nodes(child)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
