"""From a topic's settings to its logs' configuration."""

from __future__ import annotations

import pytest

from headrace.broker.log_config import log_config
from headrace.config import BROKER_ROWS, ConfigError, Settings
from headrace.storage.log.config import LogConfig


def test_without_any_setting_the_log_has_its_own_defaults() -> None:
    assert log_config(Settings.parse(BROKER_ROWS), {}) == LogConfig()


def test_overrides_win_over_the_brokers_values() -> None:
    broker = Settings.parse(
        BROKER_ROWS, {"log.retention.hours": "2", "log.segment.bytes": "1000", "log.roll.ms": "9"}
    )
    config = log_config(broker, {"segment.bytes": "500", "cleanup.policy": "compact,delete"})
    assert config.retention_ms == 2 * 3_600_000
    assert config.segment_bytes == 500
    assert config.segment_ms == 9
    assert config.cleanup_policy == {"compact", "delete"}


def test_an_unfit_override_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        log_config(Settings.parse(BROKER_ROWS), {"segment.bytes": "1"})
