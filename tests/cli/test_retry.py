"""`headrace retry` on a store with parked messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.tool import Headrace

from headrace.client.message import Message
from headrace.store import Store, open_store
from headrace.store.failed_messages import MessageSelection
from headrace.store.fingerprints import Failure
from headrace.store.retries import lane_digest

FAILURE = Failure("ValueError: no", "Traceback: the whole story", "shop.bill", "abc123")
FAR_MS = 4_000_000_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    monkeypatch.setenv("HEADRACE_STORE", url)
    store = open_store(url)
    store.create()
    lane = lane_digest("orders", 0, b"k")
    with store.begin() as tx:
        for offset in (1, 2):
            parked = Message("orders", 0, offset, b"k", b"\xff", [("h", b"1")], id=f"id-{offset}")
            store.retries.park(tx, "billing.bill", parked, lane, FAILURE, 3, FAR_MS + offset)
        alone = Message("parcels", 0, 1, None, b"box", id="id-3")
        other = Failure("KeyError: 1", "Traceback", "shop.ship", "def456")
        store.retries.park(tx, "shipping.ship", alone, None, other, 1, FAR_MS + 3)
    yield store
    store.close()


def test_parked_messages_are_listed_with_state_attempts_and_next_time(
    headrace: Headrace, store: Store
) -> None:
    lines = headrace("retry", "list").stdout.splitlines()
    assert lines[0].split() == [
        "id", "handler", "state", "attempts", "next", "fingerprint", "error",
    ]  # fmt: skip
    assert lines[1].split() == [
        "id-1", "billing.bill", "waiting", "3", "2096-10-02T07:06:40.001Z", "abc123",
        "ValueError:", "no",
    ]  # fmt: skip
    assert lines[2].split()[:3] == ["id-2", "billing.bill", "behind"]
    assert len(headrace("retry", "list", "--handler", "shipping.ship").stdout.splitlines()) == 2
    assert len(headrace("retry", "list", "id-1", "id-3").stdout.splitlines()) == 3


def test_json_has_payload_headers_and_traceback(headrace: Headrace, store: Store) -> None:
    (row,) = json.loads(headrace("retry", "list", "id-1", "-o", "json").stdout)
    assert row["value"] == {"base64": "/w=="}
    assert row["headers"] == [["h", "1"]]
    assert row["traceback"] == "Traceback: the whole story"
    assert row["source"] == "orders/0/1"


def test_now_makes_messages_due(headrace: Headrace, store: Store) -> None:
    assert headrace("retry", "now", "-f", "abc123", "--dry-run").stdout == (
        "would be tried now: 2\n"
    )
    assert store.retries.find(MessageSelection(ids=["id-1"]))[0].next_ms > FAR_MS
    assert headrace("retry", "now", "-f", "abc123").stdout == "due now: 2\n"
    assert store.retries.find(MessageSelection(ids=["id-1"]))[0].next_ms < FAR_MS
    listed = headrace("retry", "list", "--topic", "orders").stdout
    assert "due" in listed
    assert "behind" in listed


def test_drop_forgets_messages(headrace: Headrace, store: Store) -> None:
    assert headrace("retry", "drop", "id-3", "--dry-run").stdout == "would be dropped: 1\n"
    assert headrace("retry", "drop", "id-3").stdout == "dropped: 1\n"
    assert headrace("retry", "drop", "--all").stdout == "dropped: 2\n"
    assert store.retries.count(MessageSelection()) == 0


def test_a_choice_must_be_made_and_must_fit(headrace: Headrace, store: Store) -> None:
    assert "no messages are named" in headrace("retry", "drop", fails=True).stderr
    assert "--all cannot be combined" in headrace("retry", "now", "--all", "x", fails=True).stderr
    assert "no such message waits" in headrace("retry", "now", "nothing", fails=True).stderr


def test_a_store_that_is_not_there_is_said_so(
    headrace: Headrace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_STORE", raising=False)
    assert "no store is given" in headrace("retry", "list", fails=True).stderr
    url = f"sqlite:///{tmp_path / 'nothing.db'}"
    assert "there is no store" in headrace("retry", "list", "--store", url, fails=True).stderr
