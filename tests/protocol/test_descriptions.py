"""Declarations agree with the descriptions that Apache Kafka ships in its jars."""

from __future__ import annotations

import dataclasses

import pytest
from tests.protocol.descriptions import (
    COORDINATORS,
    NEWEST,
    OLD,
    Shape,
    declared_shape,
    described_shape,
    descriptions,
    wire_shape,
)
from tests.protocol.messages import API_MESSAGES, HEADERS, LOG_MESSAGES, versions

from headrace.protocol.schema import Message, parse_versions

# Two structs of one API that Kafka gives one name.
RENAMED = {"EntryResult": "EntryData"}
# Versions that Kafka 4 dropped and that older clients still send.
KEPT = {
    "CreateAcls": "0",
    "CreateTopics": "0-1",
    "DeleteAcls": "0",
    "DeleteTopics": "0",
    "DescribeAcls": "0",
    "DescribeConfigs": "0",
    "Produce": "0-2",
}
NEW_SINCE_OLD = {
    "AlterShareGroupOffsets",
    "DeleteShareGroupOffsets",
    "DescribeShareGroupOffsets",
    "ListConfigResources",
}
IN_CLIENTS = [*API_MESSAGES, *HEADERS]
IN_COORDINATORS = [cls for cls in LOG_MESSAGES if not cls.__name__.startswith("ConsumerProtocol")]
IN_CLIENTS += [cls for cls in LOG_MESSAGES if cls.__name__.startswith("ConsumerProtocol")]


def described(cls: type[Message]) -> dict[str, object]:
    name = cls.__name__
    if cls not in IN_COORDINATORS:
        return descriptions("kafka-clients", NEWEST)[name]
    coordinator = "transaction" if name.startswith("Transaction") else "group"
    return descriptions(f"kafka-{coordinator}-coordinator", COORDINATORS)[name]


def api_name(cls: type[Message]) -> str:
    return cls.__name__.removesuffix("Request").removesuffix("Response")


def with_kafka_names(shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    return tuple(
        dataclasses.replace(
            shape,
            struct=RENAMED.get(shape.struct or "", shape.struct),
            fields=with_kafka_names(shape.fields),
        )
        for shape in shapes
    )


@pytest.mark.parametrize("cls", [*IN_CLIENTS, *IN_COORDINATORS], ids=lambda cls: cls.__name__)
def test_declaration_agrees_with_the_newest_description(cls: type[Message]) -> None:
    oracle = described(cls)
    valid = parse_versions(str(oracle["validVersions"]))
    flexible = parse_versions(str(oracle["flexibleVersions"]))
    kept = parse_versions(KEPT.get(api_name(cls), "none"))
    assert set(versions(cls)) == {*valid, *kept}
    assert oracle.get("apiKey", -1) == cls.API_KEY
    for version in valid:
        assert with_kafka_names(declared_shape(cls, version)) == described_shape(oracle, version)
        assert (version >= cls.FLEXIBLE) == (version in flexible)


@pytest.mark.parametrize(
    "cls",
    [cls for cls in API_MESSAGES if api_name(cls) not in NEW_SINCE_OLD],
    ids=lambda cls: cls.__name__,
)
def test_declaration_agrees_with_the_old_description(cls: type[Message]) -> None:
    oracle = descriptions("kafka-clients", OLD)[cls.__name__]
    kept = parse_versions(KEPT.get(api_name(cls), "none"))
    for version in set(parse_versions(oracle["validVersions"])).intersection(versions(cls)):
        ours, theirs = declared_shape(cls, version), described_shape(oracle, version)
        assert wire_shape(ours) == wire_shape(theirs), f"v{version}"
        if version in kept:
            assert [shape.name for shape in ours] == [shape.name for shape in theirs]
            assert version < cls.FLEXIBLE
