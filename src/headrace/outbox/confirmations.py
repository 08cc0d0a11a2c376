"""Confirmations: how a consumer tells the sender's outbox that a message was handled.

A confirmation is a record in the topic `headrace.confirm`, with the message id as its key and the
group as its value; any client can write it. The sender's side notes them in its store.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer

from headrace.client.admin.topics import NeededTopic, admin_client, create_topics
from headrace.client.message import CONFIRM_HEADER, ID_HEADER, Message
from headrace.client.settings import translate
from headrace.store.columns import is_plain

if TYPE_CHECKING:
    from headrace.store import Store

CONFIRM_TOPIC = "headrace.confirm"
BATCH_MAX = 1_000
POLL_SECONDS = 0.5
PAUSE_SECONDS = 1.0
TOPIC_SECONDS = 5.0

_log = logging.getLogger("headrace.outbox")


def confirm_header(waiting: Sequence[str] | None) -> list[tuple[str, bytes | None]]:
    """The header that asks for confirmation: a JSON list of groups, [] for any group."""
    if waiting is None:
        return []
    return [(CONFIRM_HEADER, json.dumps(waiting, separators=(",", ":")).encode())]


def wants(header: bytes | None, group: str) -> bool:
    """Whether the sender waits for this group."""
    if header is None:
        return False
    try:
        groups = json.loads(header)
    except ValueError:
        # An unreadable request: one confirmation too many does no harm.
        return True
    return not isinstance(groups, list) or not groups or group in groups


class ConfirmSender(Protocol):
    """What a Confirmer needs of a producer."""

    def send(self, topic: str, value: bytes, *, key: bytes) -> object: ...


class Confirmer:
    """Confirms handled messages that ask for it."""

    def __init__(self, producer: ConfirmSender) -> None:
        self._producer = producer

    def confirm(self, group: str, messages: Iterable[Message]) -> None:
        """Confirm those of these messages whose sender waits for this group.

        Call it once their effect is durable, for repeats as well. It returns at once and never
        raises: if a confirmation is lost, the message is sent again.
        """
        for message in messages:
            if not wants(message.header(CONFIRM_HEADER), group):
                continue
            id = message.header(ID_HEADER)
            if id is None:
                continue
            try:
                self._producer.send(CONFIRM_TOPIC, group.encode(), key=id)
            except Exception as problem:
                _log.warning("message %s was not confirmed: %s", message.id, problem)


def read_confirmations(records: Iterable[Any]) -> list[tuple[str, str | None]]:
    """Ids and groups of the topic's records; malformed records are left out."""
    found = []
    for record in records:
        if record.error() is not None or record.key() is None:
            continue
        try:
            id = record.key().decode()
            group = (record.value() or b"").decode() or None
        except UnicodeDecodeError:
            continue
        if is_plain(id):
            found.append((id, group))
    return found


class ConfirmationReader:
    """Notes the topic's confirmations in a store; several processes share the work."""

    def __init__(self, store: Store, settings: Mapping[str, Any]) -> None:
        self._store = store
        self._settings = dict(settings)

    def run(self, stop: threading.Event) -> None:
        """Read until `stop` is set, through outages of the brokers and the store."""
        while not stop.is_set():
            try:
                self._read(stop)
            except Exception as problem:
                _log.warning("reading confirmations pauses: %s", problem)
                stop.wait(PAUSE_SECONDS)

    def _read(self, stop: threading.Event) -> None:
        admin = admin_client(self._settings)
        create_topics(admin, [NeededTopic(CONFIRM_TOPIC)], TOPIC_SECONDS)
        config = {
            **translate(self._settings, "consumer"),
            # Every outbox sees all confirmations, and its relays share them.
            "group.id": f"headrace-confirm-{self._store.id}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(config)
        try:
            consumer.subscribe([CONFIRM_TOPIC])
            while not stop.is_set():
                records = consumer.consume(BATCH_MAX, POLL_SECONDS)
                if not records:
                    continue
                self._store.outbox.confirm(read_confirmations(records))
                # They are noted already; if the commit is lost, they are noted once more.
                consumer.commit(asynchronous=True)
        finally:
            consumer.close()
