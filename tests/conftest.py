"""What every test shares: the `--long` option, a broker under a short name, and real servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.stores import (
    any_pair,
    apache_kafka,
    new_database,
    pair,
    postgres,
    redis_server,
    store_url,
)

from headrace.testing import plugin

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

__all__ = [
    "any_pair",
    "apache_kafka",
    "new_database",
    "pair",
    "postgres",
    "redis_server",
    "store_url",
]

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
