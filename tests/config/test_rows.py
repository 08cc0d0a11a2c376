"""The rows: every one documented and consistent; folders, ids and fallbacks read from them."""

from __future__ import annotations

import pytest

from headrace.config import (
    BROKER_ROWS,
    TOPIC_ROWS,
    ConfigError,
    Setting,
    Settings,
    Source,
    log_dirs,
    metadata_dir,
    node_id,
    topic_settings,
    topic_synonyms,
)
from headrace.config.kinds import text_of

ALL_ROWS = [*BROKER_ROWS, *TOPIC_ROWS]


@pytest.mark.parametrize("row", ALL_ROWS, ids=lambda row: row.name)
def test_every_row_is_documented_and_its_default_is_valid(row: Setting) -> None:
    assert row.doc.endswith(".")
    text = text_of(row.default)
    if text is not None:
        assert row.parse(text) == row.default
    if row.name.endswith(".ms"):
        assert row.unit == "ms"
    if row.name.endswith(".bytes"):
        assert row.unit == "bytes"


@pytest.mark.parametrize(
    "row", [row for row in TOPIC_ROWS if row.fallbacks], ids=lambda row: row.name
)
def test_a_topic_setting_and_its_broker_twins_agree_on_the_default(row: Setting) -> None:
    for fallback in row.fallbacks:
        default = fallback.convert(BROKER_ROWS.row(fallback.name).default)
        assert default in (None, row.default)
    assert default == row.default


def test_the_only_topic_settings_without_a_twin_are_those_kafka_has_none_for() -> None:
    assert [row.name for row in TOPIC_ROWS if not row.fallbacks] == [
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"},
            3,
        ),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_follows_ms_then_minutes_then_hours(given: dict[str, str], expected: int) -> None:
    topic = topic_settings(Settings.parse(BROKER_ROWS, given), {})
    assert topic.int("retention.ms") == expected


def test_a_topics_own_value_wins_over_the_brokers() -> None:
    broker = Settings.parse(BROKER_ROWS, {"log.retention.ms": "3", "log.segment.bytes": "100"})
    topic = topic_settings(broker, {"retention.ms": "9"})
    assert topic.int("retention.ms") == 9
    assert topic.source("retention.ms") is Source.TOPIC
    assert topic.int("segment.bytes") == 100
    assert topic.source("segment.bytes") is Source.STATIC_BROKER
    assert topic.source("segment.ms") is Source.DEFAULT


def test_synonyms_name_every_place_that_gives_a_value() -> None:
    broker = Settings.parse(BROKER_ROWS, {"log.retention.minutes": "2"})
    broker.replace_layer(Source.DYNAMIC_BROKER, {"log.retention.ms": "7"})
    topic = topic_settings(broker, {"retention.ms": "9"})
    assert topic_synonyms(broker, topic, TOPIC_ROWS.row("retention.ms")) == [
        ("retention.ms", 9, Source.TOPIC),
        ("log.retention.ms", 7, Source.DYNAMIC_BROKER),
        ("log.retention.minutes", 2, Source.STATIC_BROKER),
        ("log.retention.hours", 168, Source.DEFAULT),
    ]


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    broker = Settings.parse(BROKER_ROWS)
    with pytest.raises(ConfigError, match=r"more than max\.compaction\.lag\.ms"):
        topic_settings(broker, {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"})


@pytest.mark.parametrize("text", ["", "*", "0:1", "0:1,1:2"])
def test_throttled_replicas_take_their_forms(text: str) -> None:
    TOPIC_ROWS.row("leader.replication.throttled.replicas").parse(text)


def test_throttled_replicas_refuse_other_forms() -> None:
    with pytest.raises(ConfigError):
        TOPIC_ROWS.row("leader.replication.throttled.replicas").parse("0-1")


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, 1), ({"node.id": "5"}, 5), ({"broker.id": "0"}, 0), ({"node.id": 3, "broker.id": 3}, 3)],
)
def test_the_node_id_comes_from_either_name(given: dict[str, object], expected: int) -> None:
    assert node_id(Settings.parse(BROKER_ROWS, given)) == expected


def test_folders_come_from_log_dirs_then_log_dir() -> None:
    both = Settings.parse(BROKER_ROWS, {"log.dirs": "/a,/b", "log.dir": "/c"})
    assert log_dirs(both) == ["/a", "/b"]
    assert metadata_dir(both) == "/a"
    single = Settings.parse(BROKER_ROWS, {"log.dir": "/c", "metadata.log.dir": "/m"})
    assert log_dirs(single) == ["/c"]
    assert metadata_dir(single) == "/m"


@pytest.mark.parametrize("given", [{}, {"log.dirs": "/a,/a"}])
def test_folders_missing_or_given_twice_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        log_dirs(Settings.parse(BROKER_ROWS, given))
