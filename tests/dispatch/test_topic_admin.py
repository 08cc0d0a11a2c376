"""What a node asks the brokers, and how it bears a client library that remembers wrongly."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.dispatch.harness import Harness

from headrace.dispatch import topic_admin as module
from headrace.dispatch.topic_admin import TopicAdmin


class Admin:
    """A handle of the library; the first one made is wrong forever."""

    made = 0

    def __init__(self, _config: object) -> None:
        Admin.made += 1
        self._is_wrong = Admin.made == 1

    def list_offsets(self, asked: dict[Any, Any], **_options: object) -> dict[Any, Future[Any]]:
        answers: dict[Any, Future[Any]] = {}
        for place in asked:
            answers[place] = Future()
            if self._is_wrong:
                answers[place].set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
            else:
                answers[place].set_result(type("Found", (), {"offset": 7}))
        return answers


def test_a_handle_that_knows_no_leaders_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AdminClient", Admin)
    monkeypatch.setattr(Admin, "made", 0)
    admin = TopicAdmin({"bootstrap.servers": "nowhere:1"})
    assert admin.ends("jobs", [0, 1]) == {0: 7, 1: 7}
    assert Admin.made == 2


def test_topics_are_made_once_and_asking_makes_none(harness: Harness) -> None:
    admin = TopicAdmin({"bootstrap.servers": harness.bootstrap, "log_level": 0})
    assert admin.partitions(harness.topic) == 0
    assert admin.partitions(harness.topic) == 0
    for partitions in (3, 5):
        admin.ensure_topics(harness.topic, f"{harness.topic}.done", partitions)
    assert admin.partitions(harness.topic) == 3
    assert admin.ends(harness.topic, range(3)) == dict.fromkeys(range(3), 0)
    assert admin.committed("nobody", harness.topic, range(3)) == {}
