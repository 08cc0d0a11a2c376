"""The message descriptions inside Apache Kafka's jars, read at test time as an oracle."""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests import apache_kafka
from tests.jars import jar

from headrace.protocol.schema import MessageType, Primitive, parse_versions

KAFKA = "org.apache.kafka"
NEWEST = "4.4.0"
# The last Kafka that describes the versions which Kafka 4 dropped.
OLD = "3.9.2"
# The one that the tests run: its coordinators' jars are there already.
COORDINATORS = apache_kafka.VERSION


@dataclass(frozen=True)
class Shape:
    """One field as it is on the wire in one version."""

    name: str
    type: str
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any
    struct: str | None
    fields: tuple[Shape, ...]


@cache
def descriptions(artifact: str, version: str) -> dict[str, dict[str, Any]]:
    """Every description of a jar by its message's name."""
    found = {}
    with zipfile.ZipFile(_jar(artifact, version)) as archive:
        for path in archive.namelist():
            if path.startswith("common/message/") and path.endswith(".json"):
                text = archive.read(path).decode()
                described = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                found[described["name"]] = described
    return found


def _jar(artifact: str, version: str) -> Path:
    if version != COORDINATORS:
        return jar(KAFKA, artifact, version)
    paths = map(Path, apache_kafka.classpath().split(os.pathsep))
    return next(path for path in paths if path.name == f"{artifact}-{version}.jar")


def snake_case(name: str) -> str:
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def described_shape(described: dict[str, Any], version: int) -> tuple[Shape, ...]:
    """The fields that a description gives a version of its message."""
    common = {struct["name"]: struct["fields"] for struct in described.get("commonStructs", ())}
    return _described_fields(described["fields"], common, version)


def _described_fields(
    fields: list[dict[str, Any]], common: dict[str, Any], version: int
) -> tuple[Shape, ...]:
    shapes = []
    for field in fields:
        tagged = parse_versions(field.get("taggedVersions", "none"))
        present = parse_versions(field["versions"]) if "versions" in field else tagged
        if version not in present:
            continue
        kind = field["type"].removeprefix("[]")
        is_struct = kind[0].isupper()
        inner = field.get("fields") or common.get(kind, [])
        shapes.append(
            Shape(
                name=snake_case(field["name"]),
                type="struct" if is_struct else kind,
                is_array=field["type"].startswith("[]"),
                is_nullable=version in parse_versions(field.get("nullableVersions", "none")),
                tag=field["tag"] if version in tagged else None,
                default=_described_default(field, kind),
                struct=kind if is_struct else None,
                fields=_described_fields(inner, common, version) if is_struct else (),
            )
        )
    return tuple(shapes)


def _described_default(field: dict[str, Any], kind: str) -> Any:
    if "default" in field and field["default"] in ("null", None):
        return None
    if field["type"].startswith("[]"):
        return []
    if kind[0].isupper():
        # Ours is None for a message that may be absent because it is tagged.
        return None if "tag" in field else "fresh"
    default = field.get("default", "")
    match kind:
        case "bool":
            return str(default).lower() == "true"
        case "float64":
            return float(default or 0)
        case "string":
            return default
        case "uuid":
            return bytes(16)
        case "bytes":
            return b""
        case "records":
            return "records"
        case _:
            return int(default, 0) if isinstance(default, str) and default else int(default or 0)


def declared_shape(cls: MessageType, version: int) -> tuple[Shape, ...]:
    """The fields that our declaration gives a version of a message."""
    shapes = []
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        kind = field.type
        is_struct = isinstance(kind, MessageType)
        default = field.fresh_default()
        if isinstance(kind, MessageType) and default == kind():
            default = "fresh"
        if isinstance(kind, Primitive) and kind.name == "records":
            default = "records"
        shapes.append(
            Shape(
                name=field.name,
                type="struct" if isinstance(kind, MessageType) else kind.name,
                is_array=field.is_array,
                is_nullable=version in field.nullable,
                tag=field.tag,
                default=default,
                struct=kind.__name__ if is_struct and isinstance(kind, MessageType) else None,
                fields=declared_shape(kind, version) if isinstance(kind, MessageType) else (),
            )
        )
    return tuple(shapes)


def wire_shape(shapes: tuple[Shape, ...]) -> list[Any]:
    """What of a shape decides the bytes: not names of structs, not defaults of plain fields."""
    return [(s.type, s.is_array, s.is_nullable, s.tag, wire_shape(s.fields)) for s in shapes]
