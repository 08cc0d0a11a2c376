"""`headrace outbox` and `headrace inbox`: what they print, and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.tool import Headrace

from headrace.store import Store, open_store

MEGABYTE = 1_000_000


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    monkeypatch.setenv("HEADRACE_STORE", url)
    return url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.create()
    yield store
    store.close()


def fail(store: Store, why: str) -> None:
    """Let all that is pending fail."""
    messages = store.outbox.pending(100, MEGABYTE)
    with store.begin() as tx:
        store.outbox.mark_refused(tx, {message.seq: why for message in messages})


def test_messages_are_listed_shown_and_counted(store: Store, headrace: Headrace) -> None:
    with store.begin() as tx:
        first = tx.send("orders", b"\xff", headers={"trace": "1"}, confirm_by=["a", "b"])
        second = tx.send("bills", "text", key="k", confirm_by="any")
    lines = headrace("outbox", "list").stdout.splitlines()
    assert lines[0].split() == ["id", "topic", "state", "created", "sends", "waiting", "error"]
    assert [line.split()[0] for line in lines[1:]] == [second, first]
    assert [line.split()[5] for line in lines[1:]] == ["any", "a,b"]
    found = json.loads(headrace("outbox", "list", "--topic", "orders", "-o", "json").stdout)
    assert [row["id"] for row in found] == [first]
    shown = json.loads(headrace("outbox", "show", first).stdout)
    assert shown["value"] == {"base64": "/w=="}
    assert shown["headers"] == [["trace", "1"]]
    assert json.loads(headrace("outbox", "show", second).stdout)["value"] == "text"
    counts = json.loads(headrace("outbox", "counts", "-o", "json").stdout)
    assert {row["state"]: row["messages"] for row in counts} == {
        "pending": 2,
        "sent": 0,
        "confirmed": 0,
        "failed": 0,
    }
    refused = headrace("outbox", "show", "unknown", fails=True)
    assert "the outbox has no message 'unknown'" in refused.stderr


def test_failed_messages_are_sent_again_on_request(store: Store, headrace: Headrace) -> None:
    with store.begin() as tx:
        ids = [tx.send("orders", b"v") for _ in range(3)]
    fail(store, "too large")
    assert "too large" in headrace("outbox", "list", "--state", "failed").stdout
    assert headrace("outbox", "resend", ids[0]).stdout == "pending again: 1\n"
    assert headrace("outbox", "resend", "--failed").stdout == "pending again: 2\n"
    partly = headrace("outbox", "resend", ids[0], "unknown", fails=True)
    assert "1 of these ids are not in the outbox" in partly.stderr
    assert "give ids, or --failed" in headrace("outbox", "resend", fails=True).stderr


def test_messages_are_confirmed_and_cleaned_by_hand(store: Store, headrace: Headrace) -> None:
    with store.begin() as tx:
        id = tx.send("orders", b"v", confirm_by=["a", "b"])
    assert headrace("outbox", "confirm", id, "--group", "a").stdout == "confirmed 0\n"
    assert headrace("outbox", "confirm", id).stdout == "confirmed 1\n"
    assert headrace("outbox", "clean", "--older-than", "1h").stdout == "removed 0\n"
    assert headrace("outbox", "clean", "--older-than", "0s").stdout == "removed 1\n"


def test_consumed_messages_are_found_and_forgotten(store: Store, headrace: Headrace) -> None:
    with store.begin() as tx:
        store.inbox.claim(tx, "billing", ["order-1"], 1_700_000_000_000)
    assert headrace("inbox", "find", "order-1").stdout.splitlines()[1].split() == [
        "order-1",
        "billing",
        "2023-11-14T22:13:20.000Z",
    ]
    assert (
        "no handler has consumed order-2" in headrace("inbox", "find", "order-2", fails=True).stderr
    )
    assert headrace("inbox", "clean", "--older-than", "7d").stdout == "forgot 1\n"
    assert headrace("inbox", "clean").stdout == "forgot 0\n"


def test_a_store_that_is_not_there_is_not_made(
    url: str, tmp_path: Path, headrace: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no store at" in headrace("outbox", "list", fails=True).stderr
    assert not (tmp_path / "shop.db").exists()
    wrong = headrace("inbox", "find", "1", "--store", "mysql://somewhere/shop", fails=True)
    assert "cannot be kept in mysql" in wrong.stderr
    monkeypatch.delenv("HEADRACE_STORE")
    assert "no store is given" in headrace("inbox", "find", "1", fails=True).stderr


def test_settings_of_a_producer_do_not_disturb_the_consumers(
    store: Store, headrace: Headrace
) -> None:
    with store.begin() as tx:
        tx.send("orders", b"v")
    assert headrace("outbox", "relay", "--once", "-X", "linger.ms=1").stdout == "sent 1\n"
    refused = headrace("outbox", "relay", "--once", "-X", "linger.mz=1", fails=True)
    assert "linger.mz is not a setting" in refused.stderr


def test_http_beyond_this_machine_needs_a_token(store: Store, headrace: Headrace) -> None:
    refused = headrace("outbox", "relay", "--http", "0.0.0.0:0", fails=True)
    assert "set a token" in refused.stderr
