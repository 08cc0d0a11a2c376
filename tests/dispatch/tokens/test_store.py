"""Fences: their order, and their text in headers."""

from __future__ import annotations

import pytest

from headrace.dispatch.tokens.store import Fence


@pytest.mark.parametrize("text", ["", ".", "1", "1.", ".2", "a.b", "-1.2", "1.2.3", "1 .2", "９.1"])
def test_a_fence_that_no_node_wrote_is_none(text: str) -> None:
    assert Fence.parse(text) is None


def test_fences_are_ordered_by_epoch_and_then_by_offset() -> None:
    assert Fence.parse(Fence(12, 3456).text()) == Fence(12, 3456)
    assert Fence(2, 0) > Fence(1, 99) > Fence(1, 98)
