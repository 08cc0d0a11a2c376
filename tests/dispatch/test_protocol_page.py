"""The page on the protocol says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.owned_partition import TRANSITIONS
from headrace.dispatch.tokens.scheduler import STRIDE

PAGE = (Path(__file__).parents[2] / "docs" / "dispatch-protocol.md").read_text()


def test_the_page_has_the_whole_transition_table() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| (.+) \| ([A-Z]+) \|$", PAGE, re.MULTILINE)
    table = [(state.name, event.value, to.name) for (state, event), to in TRANSITIONS.items()]
    assert rows == table


def test_the_page_states_the_bounds_of_the_code() -> None:
    assert f"{DispatchLimits().healing_ms_max // 1000} s with the defaults" in PAGE
    assert f"`{STRIDE} / weight`" in PAGE
