"""Alarms reach every callback, and the page of alarms lists every one of them."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import get_args

import pytest

from headrace.telemetry.alarms import Alarm, AlarmName, Alarms

PAGE = Path(__file__).parents[2] / "docs" / "alarms.md"


def test_the_page_lists_every_alarm_and_no_other() -> None:
    rows = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(listed) == sorted(get_args(AlarmName))


def test_an_alarm_is_logged_and_reaches_every_callback_though_one_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    heard: list[Alarm] = []

    def fail(_alarm: Alarm) -> None:
        raise RuntimeError("no network")

    alarms = Alarms()
    alarms.add(fail)
    alarms.add(heard.append)
    with caplog.at_level(logging.WARNING, logger="headrace.alarms"):
        alarms.ring("spill", "too many", messages=3)
    assert heard == [Alarm("spill", "too many", {"messages": 3})]
    assert "spill: too many" in caplog.text
    assert "an alarm callback failed on spill" in caplog.text
