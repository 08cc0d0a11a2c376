"""What every test here shares: the `--long` option and a broker under a short name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.testing import plugin

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

_PLUGIN_NAME = "headrace"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")


def pytest_configure(config: pytest.Config) -> None:
    # Installed, the kit comes by its entry point; run from source, it is registered here.
    if not config.pluginmanager.has_plugin(_PLUGIN_NAME):
        config.pluginmanager.register(plugin, _PLUGIN_NAME)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture
def broker(headrace_broker: BrokerThread) -> BrokerThread:
    """A running broker with an empty data folder of its own."""
    return headrace_broker
