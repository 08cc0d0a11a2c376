"""Settings of Kafka's clients that a pipeline is given for both its sides, parted between them."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.client.errors import UnknownSetting
from headrace.client.settings import Kind, translate
from headrace.spark.pipeline_errors import PipelineError

_ADDRESS = {"bootstrap.servers": "127.0.0.1:9092"}


def settings_of(given: Mapping[str, str], kind: Kind) -> dict[str, str]:
    """Those of the settings that clients of a kind know; PipelineError for one that none knows."""
    other: Kind = "producer" if kind == "consumer" else "consumer"
    found = {}
    for name, value in given.items():
        if _refusal(name, value, kind) is None:
            found[name] = value
        elif (wrong := _refusal(name, value, other)) is not None:
            raise PipelineError(str(wrong), "-X takes the names of Kafka's own clients")
    return found


def shared_by_both(given: Mapping[str, str]) -> dict[str, str]:
    """The settings that consumers, producers and admin clients all know."""
    return settings_of(settings_of(given, "consumer"), "producer")


def _refusal(name: str, value: str, kind: Kind) -> UnknownSetting | None:
    try:
        translate({**_ADDRESS, name: value}, kind)
    except UnknownSetting as problem:
        return problem
    return None
