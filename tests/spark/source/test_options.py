"""Options of the source: the official connector's, and what is said of wrong ones."""

from __future__ import annotations

import pickle

import pytest

from headrace.client.wire.leaders import Isolation
from headrace.spark.errors import OptionError
from headrace.spark.source.columns import ALWAYS
from headrace.spark.source.offset_ranges import from_json, to_json
from headrace.spark.source.options import for_batch, for_stream, read_options
from headrace.spark.source.positions import Position

WHERE = {"kafka.bootstrap.servers": "one:9092,two"}
GIVEN = {**WHERE, "subscribe": "clicks"}


def test_the_least_that_is_needed() -> None:
    options = read_options(GIVEN)
    assert options.connection.servers == (("one", 9092), ("two", 9092))
    assert options.topics.names == ("clicks",)
    assert options.columns == ALWAYS
    assert options.isolation is Isolation.COMMITTED
    assert options.fails_on_data_loss
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_that_the_official_connector_has() -> None:
    options = read_options(
        {
            **WHERE,
            "subscribePattern": "click.*",
            "startingOffsets": '{"clicks": {"0": 23, "1": -2}}',
            "endingOffsets": '{"clicks": {"0": 50, "1": -1}}',
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "30s",
            "minPartitions": "8",
            "maxRecordsPerPartition": "500",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "kafkaConsumer.pollTimeoutMs": "5000",
            "fetchOffset.numRetries": "3",
            "fetchOffset.retryIntervalMs": "10",
            "groupIdPrefix": "spark",
            "kafka.group.id": "readers",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.poll.records": "20000",
            "kafka.max.partition.fetch.bytes": "1048576",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule "
            'required username="alice" password="secret";',
            "kafka.ssl.truststore.location": "/trusted.pem",
            "kafka.ssl.truststore.type": "PEM",
        }
    )
    assert options.topics.pattern == "click.*"
    assert options.starting == Position(offsets={("clicks", 0): 23, ("clicks", 1): -2})
    assert options.ending == Position(offsets={("clicks", 0): 50, ("clicks", 1): -1})
    assert (options.records_per_trigger_min, options.records_per_trigger_max) == (10, 1000)
    assert (options.tasks_min, options.records_per_task_max) == (8, 500)
    assert (options.trigger_delay_s, options.timeout_s) == (30.0, 5.0)
    assert not options.fails_on_data_loss
    assert options.columns == (*ALWAYS, "headers")
    assert options.isolation is Isolation.UNCOMMITTED
    assert options.fetch_bytes_max == 1 << 20
    settings = options.connection.settings
    assert settings["sasl.username"] == "alice"
    assert settings["ssl.ca.location"] == "/trusted.pem"


def test_names_are_read_whatever_their_case() -> None:
    options = read_options({"BOOTSTRAP": "one", "Assign": '{"clicks": [0, 2]}', "COLUMNS": "Value"})
    assert options.topics.assigned == (("clicks", 0), ("clicks", 2))
    assert options.columns == ("value",)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"startingTimestamp": "5"}, Position(time_ms=5)),
        (
            {
                "startingOffsetsByTimestamp": '{"clicks": {"0": 7}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            Position(times_ms={("clicks", 0): 7}, late="latest"),
        ),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, Position(time_ms=5)),
        ({"startingOffsets": "Earliest"}, Position("earliest")),
    ],
)
def test_where_to_begin(given: dict[str, str], expected: Position) -> None:
    assert read_options({**GIVEN, **given}).starting == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "clicks"}, "kafka.bootstrap.servers"),
        (WHERE, "one of subscribe, subscribePattern and assign"),
        ({**GIVEN, "assign": '{"clicks": [0]}'}, "subscribe and assign are given"),
        ({**WHERE, "subscribe": ","}, "names no topic"),
        ({**WHERE, "subscribePattern": "("}, "is not a valid pattern"),
        ({**WHERE, "assign": "clicks"}, r'such as \{"clicks": \[0, 1\]\}'),
        ({**WHERE, "assign": '{"clicks": 0}'}, "no list of partitions"),
        ({**GIVEN, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({**GIVEN, "startingOffsets": "first"}, "neither a known word nor JSON"),
        ({**GIVEN, "startingOffsets": '{"clicks": {"0": -3}}'}, "-2 or more"),
        ({**GIVEN, "startingOffsets": '{"clicks": [0]}'}, "no offset for each partition"),
        ({**GIVEN, "startingTimestamp": "today"}, "whole number"),
        ({**GIVEN, "startingOffsetsByTimestampStrategy": "first"}, "neither error nor latest"),
        ({**GIVEN, "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger '0' is not a whole number"),
        ({**GIVEN, "minPartitions": "many"}, "whole number above zero"),
        ({**GIVEN, "maxTriggerDelay": "soon"}, "such as 500ms"),
        ({**GIVEN, "failOnDataLoss": "no"}, "neither true nor false"),
        ({**GIVEN, "columns": "values"}, "did you mean value"),
        ({**GIVEN, "columns": "value", "includeHeaders": "true"}, "add headers to columns"),
        ({**GIVEN, "group": " "}, "group is empty"),
        (
            {**GIVEN, "bootstrap": "one:9092"},
            "both bootstrap and kafka.bootstrap.servers are given",
        ),
        ({**GIVEN, "kafka.bootstrap.servers": "one:x"}, "not HOST:PORT"),
        ({**GIVEN, "kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({**GIVEN, "kafka.value.deserializer": "x"}, "cast them"),
        ({**GIVEN, "kafka.enable.auto.commit": "true"}, "group shows them"),
        ({**GIVEN, "kafka.isolation.level": "all"}, "read_committed, read_uncommitted"),
        ({**GIVEN, "kafka.fetch.min.byte": "1"}, "did you mean fetch.min.bytes"),
        ({**GIVEN, "kafka.security.protocol": "TLS"}, "use plaintext, ssl"),
        ({**GIVEN, "kafka.ssl.truststore.location": "/t.jks"}, "must be a PEM file"),
        ({**GIVEN, "kafka.ssl.ca.pem": "-----"}, "with a file"),
    ],
)
def test_bad_options_are_refused_with_a_hint(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "reads nothing"),
        ({"startingOffsets": '{"clicks": {"0": -1}}'}, "-1 .latest. is not for batches"),
        ({"endingOffsets": "earliest"}, "reads nothing"),
        ({"endingOffsets": '{"clicks": {"0": -2}}'}, "reads nothing"),
    ],
)
def test_what_a_batch_cannot_do(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        for_batch(read_options({**GIVEN, **given}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "availableNow"),
        ({"endingTimestamp": "5"}, "availableNow"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "above maxOffsetsPerTrigger"),
    ],
)
def test_what_a_stream_cannot_do(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        for_stream(read_options({**GIVEN, **given}))


def test_checkpoints_have_one_order() -> None:
    places = {("b", 10): 1, ("b", 2): 2, ("a", 0): 3}
    found = to_json(places)
    assert list(found) == ["a", "b"]
    assert list(found["b"]) == ["2", "10"]
    assert from_json(found) == places
