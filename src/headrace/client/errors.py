"""The errors of producers and consumers, each with what to do about it."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException

from headrace.client.message import ConsumedRecord
from headrace.errors import HeadraceError


class ClientError(HeadraceError, KafkaException):  # type: ignore[misc]  # has no types
    """A KafkaException with a message of its own and a hint; `args[0]` is the KafkaError."""

    CODE: int = KafkaError._FAIL

    def __init__(self, message: str, hint: str = "", error: Any = None) -> None:
        super().__init__(message, hint)
        self.args = (error if error is not None else KafkaError(self.CODE, message),)


class UnknownSetting(HeadraceError, ValueError):
    """A setting that neither Kafka nor librdkafka has, or one that cannot be used here."""


class DeliveryFailed(ClientError):
    """A record was not written, or it is unknown whether it was."""


class BufferFull(ClientError, BufferError):
    """The buffer of unsent records stayed full for `max.block.ms`."""

    CODE = KafkaError._QUEUE_FULL


class RecordTooLarge(ClientError, ValueError):
    """A record is larger than `max.request.size`."""

    CODE = KafkaError.MSG_SIZE_TOO_LARGE


class TopicSwitchedOff(ClientError):
    """An operator has switched off sending to the topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"sending to {topic} is switched off", f"headrace producer on {topic} switches it on"
        )
        self.topic = topic


class RateLimited(ClientError):
    """The topic's limit would make the caller wait longer than `max.block.ms`."""


class TopicNotCreated(ClientError):
    """A broker refused to create a topic."""

    def __init__(self, topic: str, error: Any) -> None:
        super().__init__(
            f"topic {topic} was not created: {error.str()}", f"headrace topic create {topic}", error
        )
        self.topic = topic


class CommitFailed(ClientError):
    """Offsets were not committed."""


class WhereToStart(HeadraceError):
    """A consumer must be given a start; a retry would fail the same way."""


class NoStart(WhereToStart):
    """A partition has no committed offset, and `auto.offset.reset` is none."""


class UnknownGroupHistory(WhereToStart):
    """A group that is new to a topic with a long history must be given a start."""

    def __init__(self, group: str, topic: str, records: int, older_than: str | None) -> None:
        age = f", the oldest more than {older_than} old" if older_than else ""
        super().__init__(
            f"group {group!r} has never committed on topic {topic!r}, which holds "
            f"{records:,} records{age}: is the group's name right?",
            'if it is, give it a start: start="earliest", start="latest", '
            'start="2h" (two hours ago) or start="2026-01-31T08:00Z"',
        )
        self.group = group
        self.topic = topic
        self.records = records


class UndecodableRecord(ClientError):
    """A deserialiser refused `record`; the next poll continues after it."""

    CODE = KafkaError._VALUE_DESERIALIZATION

    def __init__(self, record: ConsumedRecord, cause: BaseException) -> None:
        super().__init__(
            f"cannot read {record.topic()}/{record.partition()}/{record.offset()}: {cause}"
        )
        self.record = record
