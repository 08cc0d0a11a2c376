"""The pytest plugin: fixtures for every project that has Headrace installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headrace.testing import BrokerThread, VirtualClock


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerThread]:
    """A broker for one test; `@pytest.mark.headrace({"num.partitions": 3})` gives settings."""
    from headrace.testing import BrokerThread

    with BrokerThread(_settings(request), data_dir=tmp_path / "headrace") as broker:
        yield broker


@pytest.fixture
def headrace_clock() -> VirtualClock:
    """A clock that stands still until `advance(ms)`."""
    from headrace.testing import VirtualClock

    return VirtualClock()


@pytest.fixture
def headrace_virtual_broker(
    request: pytest.FixtureRequest, tmp_path: Path, headrace_clock: VirtualClock
) -> Iterator[BrokerThread]:
    """Like `headrace_broker`, on the virtual time of `headrace_clock`."""
    from headrace.testing import BrokerThread

    data_dir = tmp_path / "headrace"
    with BrokerThread(_settings(request), data_dir=data_dir, clock=headrace_clock) as broker:
        yield broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "headrace(settings): broker settings for the headrace_broker fixtures"
    )
    # pytest parses every module of a package that has a plugin again, to rewrite its asserts. Ours
    # does not need that, and imports much of itself late and in threads, where CPython 3.11 fails
    # when two of them parse at once.
    hook = config.pluginmanager.rewrite_hook
    getattr(hook, "_must_rewrite", set()).discard("headrace")
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def _settings(request: pytest.FixtureRequest) -> dict[str, object]:
    mark = request.node.get_closest_marker("headrace")
    return dict(mark.args[0]) if mark is not None and mark.args else {}
