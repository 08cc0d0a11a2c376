"""Definitions of pipelines: what they say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.admin.groups import MARKERS
from headrace.client.errors import UnknownSetting
from headrace.client.settings import common_settings, settings_of
from headrace.spark import Folder, Json, Pipeline, Source, Table, Topic, pipeline
from headrace.spark.errors import PipelineError, SinkError
from headrace.spark.pipelines.comparison import compare_sorted
from headrace.spark.pipelines.definitions import ONLY
from headrace.spark.pipelines.pacing import trigger_seconds
from headrace.spark.pipelines.progress import has_reached, read_progress, seconds_left
from headrace.spark.sink.markers import PREFIX
from headrace.spark.sink.options import read_options


def define(**given: Any) -> Pipeline:
    return pipeline(**{"source": "in", "sink": "out", **given})(copied)


def copied(events: Any) -> Any:
    return events


def test_a_definition_names_everything_by_default() -> None:
    made = define()
    assert made.name == "copied"
    assert made.sources == {ONLY: Source("in")}
    assert made.sink == Topic("out")
    assert made.version == 1
    assert made("rows") == "rows"


def test_several_sources_keep_their_names() -> None:
    value = Json("id STRING")
    made = define(source={"orders": "orders", "people": Source("people", latest=True)}, value=value)
    assert made.sources["orders"] == Source("orders", value)
    assert made.sources["people"].latest


def test_versions_have_outputs_of_their_own() -> None:
    assert [Topic("t").output(version) for version in (1, 2)] == ["t", "t.v2"]
    assert [Table("u", "t").output(version) for version in (1, 2)] == ["t_v1", "t_v2"]
    assert [Folder("/f/").output(version) for version in (1, 2)] == ["/f/v1", "/f/v2"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"version": 0}, "version 0"),
        ({"tasks": 0}, "0 tasks"),
        ({"name": "a/b"}, "not a valid pipeline name"),
        ({"source": ""}, "no topic"),
        ({"source": {}}, "streams"),
        ({"source": {"people": Source("people", latest=True)}}, "streams"),
        ({"sink": "/data/out"}, "Folder"),
        ({"sink": "in"}, "would read what it writes"),
        ({"output_mode": "upsert"}, "not one of append, update, complete"),
        ({"output_mode": "update", "sink": Folder("/x")}, "keys"),
        ({"output_mode": "update", "sink": Table("sqlite://", "x")}, "keys"),
        ({"output_mode": "complete", "sink": Folder("/x")}, "Table"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(given: Any, words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        define(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "kafka.bootstrap.servers is missing"),
        ({"bootstrap": "a:1", "topik": "x"}, "did you mean topic"),
        ({"bootstrap": "a:1", "kafka.acks": "1"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.transactional.id": "x"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.enable.idempotence": "false"}, "cannot be set"),
        ({"bootstrap": "a:1", "kafka.partitioner.class": "x.Y"}, "cannot be set"),
        ({"bootstrap": "a:b"}, "'a:b' is not HOST:PORT"),
        ({"bootstrap": "a:1", "kafka.compression.type": "brotli"}, "gzip, snappy, lz4, zstd"),
        ({"bootstrap": "a:1", "kafka.transaction.timeout.ms": "5m"}, "'5m' is not a whole number"),
        ({"bootstrap": "a:1", "kafka.security.protocol": "tls"}, "security.protocol 'tls'"),
        (
            {
                "bootstrap": "a:1",
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "GSSAPI",
            },
            "sasl.mechanism 'GSSAPI'",
        ),
        (
            {"bootstrap": "a:1", "kafka.ssl.truststore.certificates": "-----BEGIN"},
            "use kafka.ssl.ca.location with a file",
        ),
        ({"bootstrap": "a:1", "kafka.lingerms": "1"}, "linger.ms"),
    ],
)
def test_a_wrong_option_of_the_sink_fails_with_a_hint(given: dict[str, str], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        read_options(given)


def test_options_go_by_the_official_names() -> None:
    options = read_options(
        {
            "kafka.bootstrap.servers": "a:1",
            "topic": "out",
            "kafka.compression.type": "lz4",
            "kafka.transaction.timeout.ms": "60000",
            # As the sink does anyhow.
            "kafka.acks": "-1",
            "kafka.enable.idempotence": "true",
            "checkpointlocation": "/c",
        }
    )
    assert options.topic == "out"
    assert options.connection.settings["bootstrap.servers"] == "a:1"
    assert options.connection.settings["compression.type"] == "lz4"
    assert options.connection.settings["transaction.timeout.ms"] == "60000"
    assert options.connection.settings["acks"] == "all"


def test_a_replay_reads_all_there_is() -> None:
    made = define(start="latest", options={"startingTimestamp": "5", "failOnDataLoss": "false"})
    replayed = made.from_zero()
    assert replayed.start == "earliest"
    assert replayed.options == {"failOnDataLoss": "false"}
    assert (replayed.name, replayed.sink, replayed.version) == (made.name, made.sink, made.version)


def test_settings_of_clients_go_to_the_side_that_knows_them() -> None:
    given = {"compression.type": "lz4", "fetch.max.bytes": "1000000", "sasl.mechanism": "PLAIN"}
    assert set(settings_of(given, "producer")) == {"compression.type", "sasl.mechanism"}
    assert set(settings_of(given, "consumer")) == {"fetch.max.bytes", "sasl.mechanism"}
    assert common_settings(given) == {"sasl.mechanism": "PLAIN"}
    with pytest.raises(UnknownSetting, match=r"compression\.typ\b"):
        settings_of({"compression.typ": "lz4"}, "consumer")


def test_whoever_measures_lag_knows_a_sinks_markers() -> None:
    assert f"{PREFIX}." == MARKERS


def test_times_from_batch_to_batch() -> None:
    assert trigger_seconds("10 seconds") == 10
    assert trigger_seconds("1 minute") == 60
    assert trigger_seconds("500 milliseconds") == 0.5
    with pytest.raises(PipelineError):
        trigger_seconds("soon")


def test_progress_knows_what_is_left() -> None:
    report = (
        '{"batchId": 3, "processedRowsPerSecond": 50.0, "numInputRows": 10, "sources": '
        '[{"endOffset": {"t": {"0": 60, "1": 150}}, "latestOffset": '
        '{"t": {"0": 100, "1": 150}, "headrace.lag": {"records": 40, "seconds": 1.5}}}]}'
    )
    ends = {"t": {"0": 100, "1": 100}}
    progress = read_progress(report, {"t": {"0": 10, "1": 0}}, ends)
    assert (progress.batch, progress.done, progress.total) == (3, 150, 190)
    assert progress.lag == {"records": 40, "seconds": 1.5}
    assert seconds_left(progress) == 0.8
    assert not has_reached(report, ends)
    assert has_reached(report, {"t": {"0": 60, "1": 100, "2": 0}})
    assert seconds_left(read_progress(report)) is None


def test_two_outputs_are_compared_key_by_key() -> None:
    old = [(("a",), "1"), (("b",), "2"), (("c",), "3")]
    new = [(("b",), "2"), (("c",), "4"), (("d",), "5"), (("e",), "6")]
    found = compare_sorted(old, new)
    assert (found.old_rows, found.new_rows) == (3, 4)
    assert (found.same, found.different, found.only_old, found.only_new) == (1, 1, 1, 2)
    assert found.examples[0] == {"key": ["a"], "kind": "only_old", "old": "1", "new": None}
    assert compare_sorted(old, old).same == 3
    assert compare_sorted([], []).to_dict()["examples"] == []
