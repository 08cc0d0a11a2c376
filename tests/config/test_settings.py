"""Settings: parsing, typed values, layers by source, change while running."""

from __future__ import annotations

import pytest

from headrace.config import (
    BROKER_ROWS,
    TOPIC_ROWS,
    ConfigError,
    Kind,
    Rows,
    Setting,
    Settings,
    Source,
)
from headrace.config.kinds import DOUBLE_MAX, parse, text_of

SECRET = Rows(
    noun="secret setting",
    rows=(
        Setting(name="keystore.password", kind=Kind.PASSWORD, default=None, doc="", sensitive=True),
        Setting(name="pin", kind=Kind.INT, default=1, doc="", sensitive=True),
    ),
)


def test_defaults_are_there_without_any_input() -> None:
    settings = Settings.parse(BROKER_ROWS, {})
    assert settings.int("num.partitions") == 1
    assert settings.bool("auto.create.topics.enable") is True
    assert settings.float("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.str("compression.type") == "producer"
    assert settings.list("log.cleanup.policy") == ["delete"]
    assert settings.value("log.retention.ms") is None
    assert settings.optional_str("broker.rack") is None
    assert settings.is_default("num.partitions")
    assert settings.given() == {}


def test_text_is_parsed_by_the_kind_of_its_row() -> None:
    settings = Settings.parse(
        BROKER_ROWS,
        {
            "num.partitions": " 6 ",
            "auto.create.topics.enable": "False",
            "log.cleanup.policy": "compact , delete",
            "log.cleaner.min.cleanable.ratio": "0.25",
        },
    )
    assert settings.int("num.partitions") == 6
    assert settings.bool("auto.create.topics.enable") is False
    assert settings.list("log.cleanup.policy") == ["compact", "delete"]
    assert settings.float("log.cleaner.min.cleanable.ratio") == 0.25
    assert not settings.is_default("num.partitions")
    assert settings.source("num.partitions") is Source.STATIC_BROKER
    assert settings.given()["log.cleanup.policy"] == "compact,delete"


def test_plain_python_values_are_taken_too() -> None:
    settings = Settings.parse(
        BROKER_ROWS,
        {
            "num.partitions": 3,
            "delete.topic.enable": False,
            "log.cleaner.min.cleanable.ratio": 1.0,
            "log.dirs": ["/a", "/b"],
        },
    )
    assert settings.int("num.partitions") == 3
    assert settings.bool("delete.topic.enable") is False
    assert settings.list("log.dirs") == ["/a", "/b"]


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(BROKER_ROWS, {"log.retenton.ms": "1"})
    assert caught.value.name == "log.retenton.ms"
    assert caught.value.nearest == "log.retention.ms"
    assert str(caught.value) == (
        "log.retenton.ms: unknown broker setting (did you mean log.retention.ms?)"
    )


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(TOPIC_ROWS, {"qqq": "1"})
    assert caught.value.nearest is None
    assert str(caught.value) == "qqq: unknown topic setting"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("num.partitions", "many", "expected a whole number"),
        ("num.partitions", "1_0", "expected a whole number"),
        ("num.partitions", "", "expected a whole number"),
        ("num.partitions", "0", "must be at least 1"),
        ("num.partitions", str(2**31), "does not fit in 32 bits"),
        ("log.retention.bytes", str(2**63), "does not fit in 64 bits"),
        ("offsets.topic.replication.factor", "40000", "does not fit in 16 bits"),
        ("auto.create.topics.enable", "yes", "expected true or false"),
        ("log.cleaner.min.cleanable.ratio", "2", "must be between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "expected a finite number"),
        ("log.cleaner.min.cleanable.ratio", "half", "expected a finite number"),
        ("log.cleanup.policy", "compact,shred", "one or more of delete, compact"),
        ("log.cleanup.policy", "delete,delete", "one or more of delete, compact"),
        ("log.cleanup.policy", "", "one or more of delete, compact"),
        ("compression.type", "brotli", "must be one of"),
        ("compression.gzip.level", "0", "-1 or between 1 and 9"),
        ("log.retention.ms", "0", "-1 (no limit) or at least 1"),
        ("max.connections.per.ip.overrides", "here", "host:count pairs"),
        ("log.dirs", "", "not empty"),
    ],
)
def test_a_bad_value_is_refused_with_name_and_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(BROKER_ROWS, {name: value})
    assert caught.value.name == name
    assert reason in caught.value.reason


def test_a_value_of_a_strange_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected text, got dict"):
        Settings.parse(BROKER_ROWS, {"num.partitions": {}})


def test_a_bad_sensitive_value_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(SECRET, {"pin": "hunter2"})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"node.id": "1", "broker.id": "2"}, "broker.id"),
        (
            {
                "group.min.session.timeout.ms": "10",
                "group.max.session.timeout.ms": "9",
            },
            "group.min.session.timeout.ms",
        ),
        (
            {"queued.max.request.bytes": "10", "socket.request.max.bytes": "11"},
            "queued.max.request.bytes",
        ),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(given: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings.parse(BROKER_ROWS, given)
    assert caught.value.name == name


def test_a_layer_above_wins_and_its_removal_gives_the_layer_below_back() -> None:
    settings = Settings.parse(BROKER_ROWS, {"message.max.bytes": "100"})
    settings.replace_layer(Source.DYNAMIC_DEFAULT_BROKER, {"message.max.bytes": "200"})
    settings.replace_layer(Source.DYNAMIC_BROKER, {"message.max.bytes": "300"})
    assert settings.int("message.max.bytes") == 300
    assert list(settings.candidates("message.max.bytes")) == [
        (Source.DYNAMIC_BROKER, 300),
        (Source.DYNAMIC_DEFAULT_BROKER, 200),
        (Source.STATIC_BROKER, 100),
        (Source.DEFAULT, 1_048_588),
    ]
    settings.replace_layer(Source.DYNAMIC_BROKER, {})
    assert settings.int("message.max.bytes") == 200
    settings.replace_layer(Source.DYNAMIC_DEFAULT_BROKER, {})
    assert settings.source("message.max.bytes") is Source.STATIC_BROKER


def test_a_replaced_layer_tells_which_values_differ() -> None:
    settings = Settings.parse(BROKER_ROWS, {"message.max.bytes": "100"})
    given = {"message.max.bytes": "100", "log.retention.ms": "5"}
    assert settings.replace_layer(Source.DYNAMIC_BROKER, given) == {"log.retention.ms"}
    assert settings.replace_layer(Source.DYNAMIC_BROKER, given) == set()


def test_an_unfit_layer_changes_nothing() -> None:
    settings = Settings.parse(BROKER_ROWS)
    given = {"message.max.bytes": "7", "num.partitions": "0"}
    with pytest.raises(ConfigError):
        settings.check_layer(Source.DYNAMIC_BROKER, given)
    with pytest.raises(ConfigError):
        settings.replace_layer(Source.DYNAMIC_BROKER, given)
    assert settings.is_default("message.max.bytes")


@pytest.mark.parametrize(
    ("kind", "text", "canonical"),
    [
        (Kind.BOOLEAN, "TRUE", "true"),
        (Kind.INT, "+7", "7"),
        (Kind.DOUBLE, "0.50", "0.5"),
        (Kind.DOUBLE, str(DOUBLE_MAX), "1.7976931348623157E308"),
        (Kind.LIST, "a, b", "a,b"),
        (Kind.LIST, "", ""),
        (Kind.STRING, " x ", "x"),
        (Kind.PASSWORD, "p", "p"),
    ],
)
def test_values_have_one_canonical_text(kind: Kind, text: str, canonical: str) -> None:
    assert text_of(parse(kind, text)) == canonical
