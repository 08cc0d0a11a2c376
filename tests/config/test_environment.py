"""The environment: settings, data folder and bootstrap address."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headrace
from headrace.config import ConfigError
from headrace.config.environment import bootstrap_servers, broker_settings, data_dir, store_url


def test_settings_are_read_by_prefix() -> None:
    environ = {"HEADRACE_CONFIG_NUM_PARTITIONS": "3", "HEADRACE_OTHER": "x", "PATH": "/bin"}
    assert broker_settings(environ) == {"num.partitions": "3"}


def test_an_unknown_setting_in_the_environment_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError) as caught:
        broker_settings({"HEADRACE_CONFIG_NUM_PARTITION": "3"})
    assert caught.value.name == "HEADRACE_CONFIG_NUM_PARTITION"
    assert caught.value.nearest == "num.partitions"


def test_the_data_folder_follows_the_environment() -> None:
    assert data_dir({"HEADRACE_DATA_DIR": "/data"}) == Path("/data")
    assert data_dir({"XDG_DATA_HOME": "/xdg"}) == Path("/xdg/headrace")
    assert data_dir({}) == Path.home() / ".local" / "share" / "headrace"


def test_the_bootstrap_address_has_a_default() -> None:
    assert bootstrap_servers({"HEADRACE_BOOTSTRAP": "a:1"}) == "a:1"
    assert bootstrap_servers({}) == "127.0.0.1:9092"


def test_there_is_no_store_unless_one_is_named() -> None:
    assert store_url({"HEADRACE_STORE": "sqlite:///shop.db"}) == "sqlite:///shop.db"
    assert store_url({}) is None


def test_no_other_module_reads_the_environment() -> None:
    package = Path(headrace.__file__).parent
    reads = re.compile(r"\bos\.(environ|getenv)\b|from os import .*(environ|getenv)")
    readers = {
        str(module.relative_to(package))
        for module in package.rglob("*.py")
        if reads.search(module.read_text())
    }
    assert readers == {"config/environment.py"}
