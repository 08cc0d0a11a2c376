"""What every test shares: options, a broker under a short name, real servers and the schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.schedule import SlowestFirst, is_quick
from tests.stores import (
    any_pair,
    apache_kafka,
    new_database,
    pair,
    postgres,
    redis_server,
    store_url,
    zookeeper,
)

from headrace.testing import plugin

if TYPE_CHECKING:
    from xdist.remote import Producer

    from headrace.testing import BrokerThread

__all__ = [
    "any_pair",
    "apache_kafka",
    "new_database",
    "pair",
    "postgres",
    "redis_server",
    "store_url",
    "zookeeper",
]

_PLUGIN_NAME = "headrace"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--quick", action="store_true", help="only files of seconds that need no JVM")


def pytest_configure(config: pytest.Config) -> None:
    # Installed, the kit comes by its entry point; run from source, it is registered here.
    if not config.pluginmanager.has_plugin(_PLUGIN_NAME):
        config.pluginmanager.register(plugin, _PLUGIN_NAME)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_wanted(item: pytest.Item) -> bool:
        if config.getoption("--quick") and not is_quick(item):
            return False
        return bool(config.getoption("--long")) or item.get_closest_marker("long") is None

    unwanted = [item for item in items if not is_wanted(item)]
    if unwanted:
        config.hook.pytest_deselected(items=unwanted)
        items[:] = [item for item in items if is_wanted(item)]


@pytest.hookimpl(optionalhook=True)  # without xdist there is nothing to schedule
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SlowestFirst | None:
    return SlowestFirst(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def broker(headrace_broker: BrokerThread) -> BrokerThread:
    """A running broker with an empty data folder of its own."""
    return headrace_broker
