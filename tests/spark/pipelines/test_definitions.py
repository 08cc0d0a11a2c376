"""Definitions of pipelines: what they say, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.errors import UnknownSetting
from headrace.client.settings import common_settings, settings_of
from headrace.spark import Folder, Json, Pipeline, Source, Table, Topic, pipeline
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.definitions import ONLY


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
