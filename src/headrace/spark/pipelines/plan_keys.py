"""Keys of a plan: whether they are what records say, or what an order of records has decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

# Expressions over several rows: a tie, or the last digit of a sum, is decided by who comes first.
_OVER_ROWS = ("AggregateExpression", "WindowExpression", "PythonUDAF")
# Where plans give new names to expressions, and the method that lists these.
_NAMING = {
    "Project": "projectList",
    "Aggregate": "aggregateExpressions",
    "Window": "windowExpressions",
}


def are_settled(plan: Any, names: Sequence[str]) -> bool:
    """Whether columns of an analysed plan are made of single records alone.

    Each is followed down to the columns of a source; what cannot be followed (the results of
    functions over groups, unions) is taken for not settled.
    """
    found: dict[int, Any] = {}
    given: set[int] = set()
    for node in _nodes(plan):
        kind = _kind(node)
        if kind == "Union":
            return False
        if kind in _NAMING:
            for each in each_of(getattr(node, _NAMING[kind])()):
                if _kind(each) == "Alias":
                    found[each.exprId().id()] = each.child()
        if node.children().size() == 0:
            given |= {each.exprId().id() for each in each_of(node.output())}

    def is_settled(expression: Any) -> bool:
        kind = _kind(expression)
        if kind in _OVER_ROWS:
            return False
        if kind == "AttributeReference":
            number = expression.exprId().id()
            return is_settled(found[number]) if number in found else number in given
        return all(map(is_settled, each_of(expression.children())))

    outputs = {each.name().lower(): each for each in each_of(plan.output())}
    return all(name.lower() in outputs and is_settled(outputs[name.lower()]) for name in names)


def each_of(found: Any) -> Iterator[Any]:
    """The elements of a sequence of Scala's."""
    for index in range(found.size()):
        yield found.apply(index)


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in each_of(plan.children()):
        yield from _nodes(child)


def _kind(what: Any) -> str:
    return str(what.getClass().getSimpleName())
