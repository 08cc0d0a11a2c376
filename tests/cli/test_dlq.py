"""`headrace dlq` on a store with dead letters and a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import Headrace

from headrace.client.message import Message
from headrace.store import Store, open_store
from headrace.store.dead_letters import DEAD, Letter
from headrace.store.failed_messages import MessageSelection
from headrace.store.fingerprints import Failure
from headrace.testing.topics import BrokerTopics

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

FAILURE = Failure("ValueError: no\nmore", "Traceback: the whole story", "shop.bill", "abc123")
OTHER = Failure("KeyError: 1", "Traceback", "shop.ship", "def456")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    monkeypatch.setenv("HEADRACE_STORE", url)
    store = open_store(url)
    store.create()
    with store.begin() as tx:
        for offset, failure in ((1, FAILURE), (2, FAILURE), (3, OTHER)):
            headers = [("trace", b"t1"), ("headrace-resent", b"4"), ("headrace-id", b"old")]
            message = Message(
                "orders", 0, offset, b"k", b"v%d" % offset, headers, id=f"id-{offset}"
            )
            letter = Letter("billing.bill", message, 6, failure, "v1", DEAD, 1500 + offset, 0)
            store.dead_letters.put(tx, letter)
    yield store
    store.close()


def test_letters_are_listed_and_grouped(headrace: Headrace, store: Store) -> None:
    lines = headrace("dlq", "list").stdout.splitlines()
    assert lines[0].split() == [
        "id", "handler", "source", "attempts", "failed", "fingerprint", "error",
    ]  # fmt: skip
    assert lines[1].split() == [
        "id-1", "billing.bill", "orders/0/1", "6", "1970-01-01T00:00:01.501Z", "abc123",
        "ValueError:", "no",
    ]  # fmt: skip
    assert len(lines) == 4
    (first, second) = headrace("dlq", "list", "--groups").stdout.splitlines()[1:]
    assert first.split()[:4] == ["abc123", "2", "billing.bill", "orders"]
    assert second.split()[:2] == ["def456", "1"]


def test_a_letter_is_shown_with_all_that_is_known(headrace: Headrace, store: Store) -> None:
    shown = headrace("dlq", "show", "id-1").stdout
    assert "Traceback: the whole story" in shown
    assert "value         v1" in shown
    (details,) = json.loads(headrace("dlq", "show", "id-1", "-o", "json").stdout)
    assert details["headers"][0] == ["trace", "t1"]
    assert (details["version"], details["attempts"], details["state"]) == ("v1", 6, "dead")
    assert "no dead letter" in headrace("dlq", "show", "nothing", fails=True).stderr


def test_a_dry_run_of_a_replay_shows_and_sends_nothing(
    headrace: Headrace, store: Store, broker: BrokerThread
) -> None:
    printed = headrace("dlq", "replay", "--fingerprint", "abc123", "--dry-run").stdout
    assert "id-1" in printed
    assert printed.endswith("would be sent again: 2\n")
    assert BrokerTopics(broker.bootstrap).partitions("orders") == []
    assert store.dead_letters.count(MessageSelection()) == 3


def test_a_replay_sends_the_message_as_it_was_with_its_id(
    headrace: Headrace, store: Store, broker: BrokerThread
) -> None:
    assert headrace("dlq", "replay", "id-1").stdout == "sent again: 1\n"
    (record,) = BrokerTopics(broker.bootstrap).read("orders")
    assert (record.key, record.value, record.id) == (b"k", b"v1", "id-1")
    assert record.headers == [("trace", b"t1"), ("headrace-id", b"id-1")]
    assert headrace("dlq", "replay", "--all").stdout == "sent again: 2\n"
    assert len(BrokerTopics(broker.bootstrap).read("orders")) == 3
    assert headrace("dlq", "list").stdout.splitlines()[1:] == []
    assert len(headrace("dlq", "list", "--replayed").stdout.splitlines()) == 4
    assert "no such dead letter" in headrace("dlq", "replay", "--all", fails=True).stderr


def test_discarded_letters_are_gone(headrace: Headrace, store: Store) -> None:
    printed = headrace("dlq", "discard", "-f", "abc123", "--dry-run").stdout
    assert printed.endswith("would be discarded: 2\n")
    assert headrace("dlq", "discard", "-f", "abc123").stdout == "discarded: 2\n"
    assert headrace("dlq", "discard", "--all").stdout == "discarded: 1\n"
    assert store.dead_letters.count(MessageSelection(), with_replayed=True) == 0


def test_a_choice_must_be_made(headrace: Headrace, store: Store) -> None:
    assert "no messages are named" in headrace("dlq", "discard", fails=True).stderr
    assert "no messages are named" in headrace("dlq", "replay", fails=True).stderr


def test_a_replay_without_a_broker_changes_nothing(headrace: Headrace, store: Store) -> None:
    done = headrace("dlq", "replay", "--all", "-b", "127.0.0.1:1", fails=True)
    assert "no broker answers" in done.stderr
    assert store.dead_letters.count(MessageSelection()) == 3
