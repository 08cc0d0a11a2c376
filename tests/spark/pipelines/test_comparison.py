"""Two versions of an output, compared key by key."""

from __future__ import annotations

from headrace.spark.pipelines.comparison import compare_sorted


def test_two_outputs_are_compared_key_by_key() -> None:
    old = [(("a",), "1"), (("b",), "2"), (("c",), "3")]
    new = [(("b",), "2"), (("c",), "4"), (("d",), "5"), (("e",), "6")]
    found = compare_sorted(old, new)
    assert (found.old_rows, found.new_rows) == (3, 4)
    assert (found.same, found.different, found.only_old, found.only_new) == (1, 1, 1, 2)
    assert found.examples[0] == {"key": ["a"], "kind": "only_old", "old": "1", "new": None}
    assert compare_sorted(old, old).same == 3
    assert compare_sorted([], []).to_dict()["examples"] == []
