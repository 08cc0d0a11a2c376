"""Confirmations: headers, records of the topic, and HTTP."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.client.message import Message
from headrace.outbox.confirm_http import BODY_BYTES_MAX, ConfirmServer
from headrace.outbox.confirmations import (
    CONFIRM_TOPIC,
    Confirmer,
    confirm_header,
    read_confirmations,
    wants,
)
from headrace.store import Store, StoreUnavailable, open_store
from headrace.telemetry.http_server import CONNECTIONS_MAX


@pytest.mark.parametrize(
    ("header", "is_wanted"),
    [
        (None, False),
        (b"[]", True),
        (b'["billing"]', True),
        (b'["shipping"]', False),
        (b'["shipping","billing"]', True),
        # From somebody else's hand; one confirmation too many does no harm.
        (b"", True),
        (b"\xff", True),
        (b"{}", True),
    ],
)
def test_the_header_says_whom_the_sender_waits_for(header: bytes | None, is_wanted: bool) -> None:
    assert wants(header, "billing") is is_wanted


def test_the_header_is_there_only_when_somebody_must_confirm() -> None:
    assert confirm_header(None) == []
    assert confirm_header([]) == [("headrace-confirm", b"[]")]


class Sender:
    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[tuple[str, bytes, bytes]] = []
        self.error = error

    def send(self, topic: str, value: bytes, *, key: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((topic, value, key))


def message(*headers: tuple[str, bytes | None]) -> Message:
    return Message("orders", 0, 7, None, b"", headers, id="an id of the handler's own")


def test_a_handled_message_is_confirmed_by_the_id_it_came_with() -> None:
    sender = Sender()
    Confirmer(sender).confirm(
        "billing",
        [
            message(("headrace-id", b"1"), ("headrace-confirm", b"[]")),
            message(("headrace-id", b"2"), ("headrace-confirm", b'["shipping"]')),
            message(("headrace-id", b"3")),
            message(("headrace-confirm", b"[]")),
        ],
    )
    assert sender.sent == [(CONFIRM_TOPIC, b"billing", b"1")]


def test_a_confirmation_that_cannot_be_sent_never_fails_the_handler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = message(("headrace-id", b"1"), ("headrace-confirm", b"[]"))
    with caplog.at_level(logging.WARNING, "headrace.outbox"):
        Confirmer(Sender(BufferError("full"))).confirm("billing", [asked])
    assert "not confirmed: full" in caplog.text


class Record:
    def __init__(self, key: bytes | None, value: bytes | None, error: object = None) -> None:
        self._parts = key, value, error

    def key(self) -> bytes | None:
        return self._parts[0]

    def value(self) -> bytes | None:
        return self._parts[1]

    def error(self) -> object:
        return self._parts[2]


def test_records_that_confirm_nothing_are_left_out() -> None:
    records = [
        Record(b"1", b"billing"),
        Record(b"2", None),
        Record(b"3", b""),
        Record(None, b"billing"),
        Record(b"\xff", b"billing"),
        Record(b"4", b"\xff"),
        Record(b"5\0", b"billing"),
        Record(b"6", b"billing", "an error"),
    ]
    assert read_confirmations(records) == [("1", "billing"), ("2", None), ("3", None)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'shop.db'}")
    store.create()
    yield store
    store.close()


def post(
    server: ConfirmServer, path: str, body: Any = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with closing(http.client.HTTPConnection(server.address, timeout=10)) as connection:
        connection.request("POST", path, data, headers or {})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def send(store: Store, *groups: str) -> str:
    with store.begin() as tx:
        return tx.send("orders", b"", confirm_by=groups or "any")


def test_http_confirms_one_or_many(store: Store) -> None:
    one, two, three = send(store), send(store, "a", "b"), send(store, "a")
    with ConfirmServer(store, "127.0.0.1", 0) as server:
        assert post(server, f"/confirm/{one}") == (200, {"confirmed": 1})
        assert post(server, f"/confirm/{two}?group=a") == (200, {"confirmed": 0})
        many = [{"id": two, "group": "b"}, {"id": three}, {"id": "unknown", "group": None}]
        assert post(server, "/confirm", many) == (200, {"confirmed": 2})
    assert store.outbox.counts()["confirmed"] == 3


def test_an_id_in_an_address_may_hold_anything(store: Store) -> None:
    with store.begin() as tx:
        tx.send("orders", b"", id="orders/1 ü", confirm_by="any")
    with ConfirmServer(store, "127.0.0.1", 0) as server:
        assert post(server, "/confirm/orders%2F1%20%C3%BC") == (200, {"confirmed": 1})


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/", b"", "POST to /confirm"),
        ("/confirm", b"", "not JSON"),
        ("/confirm", {"id": "1"}, "must be a list"),
        ("/confirm", ["1"], '{"id": "...", "group": "..."}'),
        ("/confirm", [{"id": 1}], "1 to 256 characters"),
        ("/confirm", [{"id": "1", "group": 2}], '{"id": "...", "group": "..."}'),
        ("/confirm", [{"id": "1"}] * 10_001, "at most 10000"),
        ("/confirm/", b"", "1 to 256 characters"),
        ("/confirm/%00", b"", "1 to 256 characters"),
        ("/confirm", b" " * (BODY_BYTES_MAX + 1), "the limit is 1048576"),
    ],
)
def test_http_says_what_is_wrong(store: Store, path: str, body: Any, says: str) -> None:
    with ConfirmServer(store, "127.0.0.1", 0) as server:
        status, answer = post(server, path, body)
    assert status == 400
    assert says in answer["error"]


@pytest.mark.parametrize("length", ["many", "\u00b2", "-1", "9" * 5_000])
def test_http_says_that_a_length_is_no_number(store: Store, length: str) -> None:
    with ConfirmServer(store, "127.0.0.1", 0) as server:
        status, answer = post(server, "/confirm", b"", {"Content-Length": length})
    assert status == 400
    assert "Content-Length" in answer["error"]


def test_http_beyond_this_machine_wants_a_token(store: Store) -> None:
    with pytest.raises(ValueError, match="set a token"):
        ConfirmServer(store, "0.0.0.0", 0)
    id = send(store)
    with ConfirmServer(store, "127.0.0.1", 0, token="secret") as server:
        assert post(server, f"/confirm/{id}")[0] == 401
        assert post(server, f"/confirm/{id}", headers={"Authorization": "Bearer x"})[0] == 401
        token = {"Authorization": "Bearer secret"}
        assert post(server, f"/confirm/{id}", headers=token) == (200, {"confirmed": 1})


def test_http_serves_everybody_in_turn(store: Store) -> None:
    ids = [send(store) for _ in range(CONNECTIONS_MAX + 10)]
    with ConfirmServer(store, "127.0.0.1", 0) as server, ThreadPoolExecutor(len(ids)) as pool:
        answers = pool.map(lambda id: post(server, f"/confirm/{id}"), ids)
        assert list(answers) == [(200, {"confirmed": 1})] * len(ids)


def test_http_asks_to_come_again_while_the_store_is_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_confirmations: object) -> int:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(store.outbox, "confirm", gone)
    with ConfirmServer(store, "127.0.0.1", 0) as server:
        assert post(server, "/confirm/1") == (503, {"error": "the disk is full"})
