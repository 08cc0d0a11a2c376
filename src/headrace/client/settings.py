"""Kafka's setting names, translated for librdkafka or used by this client itself."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from headrace.client import java_secrets as java
from headrace.client.errors import UnknownSetting
from headrace.client.setting_names import (
    LIBRARY_BOTH,
    LIBRARY_CONSUMER,
    LIBRARY_PRODUCER,
    REFUSED,
    WITHOUT_EFFECT,
)

ClientKind = Literal["producer", "consumer"]
ClientSettings = Mapping[str, Any]

# The least that an unsent record takes, however small its value is.
RECORD_BYTES_MIN = 256

# Settings are only read together with an address; this one is never contacted.
_ANY_ADDRESS = {"bootstrap.servers": "127.0.0.1:9092"}

_log = logging.getLogger("headrace.client")

# Used by this client itself; librdkafka never sees them.
OWN_PRODUCER = frozenset(
    {
        "interceptor.classes",
        "key.serializer",
        "value.serializer",
        "max.block.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
    }
)
OWN_CONSUMER = frozenset(
    {
        "interceptor.classes",
        "key.deserializer",
        "value.deserializer",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "default.api.timeout.ms",
        "max.poll.records",
        "headrace.history.ms",
        "headrace.history.records",
    }
)


def translate(settings: ClientSettings, kind: ClientKind) -> dict[str, Any]:
    """The settings for librdkafka, by its names; UnknownSetting for a wrong one."""
    return read(settings, kind)[0]


def read(settings: ClientSettings, kind: ClientKind) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings for librdkafka, and those that this client uses itself."""
    ours = OWN_PRODUCER if kind == "producer" else OWN_CONSUMER
    library = LIBRARY_PRODUCER if kind == "producer" else LIBRARY_CONSUMER
    config: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in settings.items():
        if name in ours:
            own[name] = value
        elif name in java.SECRETS:
            continue
        elif name in _TRANSLATED[kind]:
            config.update(_TRANSLATED[kind][name](value))
        elif name in library or name in LIBRARY_BOTH:
            config[name] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
        elif name in WITHOUT_EFFECT:
            _log.debug("%s has no effect: it tunes something that this client does not have", name)
        else:
            raise UnknownSetting(_refusal(name, kind))
    config.update(java.translate(settings))
    level = f"compression.{config.get('compression.type')}.level"
    if level in settings:
        config["compression.level"] = settings[level]
    if "bootstrap.servers" not in config and "metadata.broker.list" not in config:
        raise UnknownSetting("bootstrap.servers is missing: write HOST:PORT[,HOST:PORT]")
    return config, own


def with_bootstrap(given: str | ClientSettings) -> dict[str, Any]:
    """Settings from an address alone, or from a mapping."""
    return {"bootstrap.servers": given} if isinstance(given, str) else dict(given)


def settings_of(given: Mapping[str, Any], kind: ClientKind) -> dict[str, Any]:
    """The settings of this kind of client; UnknownSetting for one that neither kind has."""
    other: ClientKind = "consumer" if kind == "producer" else "producer"
    return {name: value for name, value in given.items() if _takes(kind, name, value, other)}


def common_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that producers, consumers and admin clients have in common."""
    return settings_of(settings_of(given, "consumer"), "producer")


def _takes(kind: ClientKind, name: str, value: Any, other: ClientKind) -> bool:
    try:
        read({**_ANY_ADDRESS, name: value}, kind)
    except UnknownSetting:
        read({**_ANY_ADDRESS, name: value}, other)
        return False
    return True


def integer(own: ClientSettings, name: str, default: int, least: int = 0) -> int:
    """A whole number among the settings of this client."""
    value = own.get(name, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        raise UnknownSetting(
            f"{name}={value!r} is not a whole number; write {least} or more"
        ) from None
    if number < least:
        raise UnknownSetting(f"{name}={number} is too small; write {least} or more")
    return number


def boolean(name: str, value: object) -> bool:
    """True or false, as Python or as Kafka writes it."""
    words = {"true": True, "false": False}
    found = words.get(str(value).lower())
    if found is None:
        raise UnknownSetting(f"{name}={value!r} is not a boolean; write true or false")
    return found


def _refusal(name: str, kind: ClientKind) -> str:
    if name in REFUSED:
        return f"{name} cannot be used here: {REFUSED[name]}"
    other: ClientKind = "consumer" if kind == "producer" else "producer"
    if name in _known(other):
        return f"{name} is a setting of a {other}, not of a {kind}"
    near = difflib.get_close_matches(name, _known(kind), n=1, cutoff=0.5)
    hint = f": did you mean {near[0]}?" if near else ""
    return f"{name} is not a setting of a {kind}{hint}"


def _known(kind: ClientKind) -> list[str]:
    producer = kind == "producer"
    names = (OWN_PRODUCER | LIBRARY_PRODUCER) if producer else (OWN_CONSUMER | LIBRARY_CONSUMER)
    return sorted({*names, *LIBRARY_BOTH, *_TRANSLATED[kind], *java.SECRETS})


Translation = Callable[[Any], dict[str, Any]]


def _renamed(name: str) -> Translation:
    return lambda value: {name: value}


def _socket_buffer(name: str) -> Translation:
    # The operating system's own size is -1 in Kafka and 0 in librdkafka.
    return lambda value: {name: 0 if int(value) == -1 else value}


def _buffer_memory(value: Any) -> dict[str, Any]:
    size = int(value)
    return {
        "queue.buffering.max.kbytes": max(1, size // 1024),
        "queue.buffering.max.messages": max(1, size // RECORD_BYTES_MIN),
    }


def _metadata_age(value: Any) -> dict[str, Any]:
    # librdkafka expires metadata by one setting and refreshes it by another.
    return {"metadata.max.age.ms": value, "topic.metadata.refresh.interval.ms": value}


_ASSIGNORS = {
    "range": "range",
    "RangeAssignor": "range",
    "roundrobin": "roundrobin",
    "RoundRobinAssignor": "roundrobin",
    # Sticky stops all members at each change; its successor keeps as much without that.
    "sticky": "cooperative-sticky",
    "StickyAssignor": "cooperative-sticky",
    "cooperative-sticky": "cooperative-sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}


def _assignors(value: Any) -> dict[str, Any]:
    names = value if isinstance(value, list | tuple) else str(value).split(",")
    found = []
    for name in names:
        short = str(name).strip().removeprefix("org.apache.kafka.clients.consumer.")
        if short not in _ASSIGNORS:
            known = "range, roundrobin, sticky, cooperative-sticky"
            raise UnknownSetting(f"partition.assignment.strategy={short!r} is unknown; use {known}")
        if _ASSIGNORS[short] not in found:
            found.append(_ASSIGNORS[short])
    eager = [name for name in found if name != "cooperative-sticky"]
    # A list with both kinds is how groups migrate: until the last member has both, the group uses
    # the kind that all of them support.
    return {"partition.assignment.strategy": ",".join(eager or found)}


def _internal_topics(value: Any) -> dict[str, Any]:
    excluded = boolean("exclude.internal.topics", value)
    return {"topic.blacklist": r"^__consumer_offsets$,^__transaction_state$"} if excluded else {}


_BOTH: dict[str, Translation] = {
    "receive.buffer.bytes": _socket_buffer("socket.receive.buffer.bytes"),
    "send.buffer.bytes": _socket_buffer("socket.send.buffer.bytes"),
    "metadata.max.age.ms": _metadata_age,
    "sasl.oauthbearer.assertion.template.file": _renamed(
        "sasl.oauthbearer.assertion.jwt.template.file"
    ),
}
_TRANSLATED: dict[ClientKind, dict[str, Translation]] = {
    "producer": {
        **_BOTH,
        "buffer.memory": _buffer_memory,
        "max.request.size": _renamed("message.max.bytes"),
        # `read` picks the level of the codec in use.
        **{f"compression.{codec}.level": lambda _level: {} for codec in ("gzip", "lz4", "zstd")},
    },
    "consumer": {
        **_BOTH,
        "fetch.max.wait.ms": _renamed("fetch.wait.max.ms"),
        "request.timeout.ms": _renamed("socket.timeout.ms"),
        "partition.assignment.strategy": _assignors,
        "exclude.internal.topics": _internal_topics,
    },
}
