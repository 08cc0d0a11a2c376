"""The two consumers of a node: what they pass on, and what they survive."""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.handlers.records import FakeRecord
from tests.waiting import wait_until

from headrace.client.message import Headers
from headrace.dispatch import consumers
from headrace.dispatch.consumers import DoneReader, WorkConsumer, generation, outcomes_of
from headrace.dispatch.records import Outcome


class Record(FakeRecord):
    """A record of TOPIC.done as the client library gives it."""

    def __init__(self, offset: int, outcome: Outcome) -> None:
        super().__init__(0, offset, outcome.id.encode())
        self._outcome = outcome

    def value(self) -> bytes | None:
        return self._outcome.answer

    def headers(self) -> Headers:
        return self._outcome.headers()


class Admin:
    """Brokers with a done topic of one partition that ends at 5."""

    def partitions(self, _topic: str) -> int:
        return 1

    def ends(self, _topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return dict.fromkeys(partitions, 5)


class Library:
    """A consumer of the client library whose first poll fails."""

    assigned: ClassVar[list[list[tuple[str, int, int]]]] = []
    polls = 0
    records: ClassVar[list[Record]] = []

    def __init__(self, *_args: Any, **_options: Any) -> None: ...

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def assign(self, offsets: list[tuple[str, int, int]]) -> None:
        Library.assigned.append(offsets)

    def poll_batch(self, _records: int, timeout_s: float) -> list[Record]:
        Library.polls += 1
        if Library.polls == 1:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        found, Library.records = Library.records, []
        if not found:
            threading.Event().wait(min(timeout_s, 0.01))
        return found


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> type[Library]:
    Library.assigned, Library.polls, Library.records = [], 0, []
    monkeypatch.setattr(consumers, "Consumer", Library)
    monkeypatch.setattr(consumers, "RESTART_SECONDS", 0.01)
    return Library


def reader(found: list[tuple[list[str], Mapping[int, int]]]) -> DoneReader:
    made: Any = DoneReader
    result: DoneReader = made(
        {},
        "jobs.done",
        Admin(),
        mine={"mine"},
        on_outcomes=lambda outcomes, position: found.append(
            ([outcome.id for outcome in outcomes], position)
        ),
    )
    return result


def test_a_done_reader_passes_on_own_outcomes_and_survives_a_lost_broker() -> None:
    found: list[tuple[list[str], Mapping[int, int]]] = []
    done = reader(found)
    done.place({0: 2})
    Library.records = [
        Record(2, Outcome("mine", "done", 3, 7)),
        Record(3, Outcome("another", "done", 3, 8)),
    ]
    assert done.start()
    wait_until(lambda: bool(found))
    assert not done.start()
    done.stop()
    assert found == [(["mine"], {0: 4})]
    # The first consumer failed; the second one began where the first had begun.
    assert Library.assigned[:2] == [[("jobs.done", 0, 2)]] * 2


def test_a_new_done_reader_starts_at_the_end() -> None:
    done = reader([])
    done.place({})
    assert done.position == {0: 5}


def test_a_rewound_done_reader_reads_again_from_further_back() -> None:
    done = reader([])
    done.place({0: 4})
    done.start()
    wait_until(lambda: Library.polls > 1)
    done.rewind({0: 1})
    wait_until(lambda: Library.assigned[-1] == [("jobs.done", 0, 1)])
    done.stop()


def test_outcomes_of_other_jobs_are_left_out() -> None:
    records = [Record(0, Outcome("a", "done", 0, 0)), Record(1, Outcome("b", "failed", 0, 1))]
    assert [outcome.id for outcome in outcomes_of(records, {"b"})] == ["b"]


def test_the_generation_is_read_from_the_librarys_metadata() -> None:
    assert generation(b"CGMDv2:" + struct.pack("=i", 42) + b"rest") == 42
    with pytest.raises(RuntimeError, match="CGMDv3"):
        generation(b"CGMDv3:....")


@pytest.mark.parametrize(
    ("settings", "absent"),
    [
        ({}, set()),
        ({"group.protocol": "classic"}, set()),
        (
            {"group.protocol": "consumer"},
            {"partition.assignment.strategy", "session.timeout.ms"},
        ),
        (
            {"group.protocol": "Consumer", "session.timeout.ms": 6_000},
            {"partition.assignment.strategy"},
        ),
    ],
)
def test_the_new_group_protocol_gets_no_settings_that_it_refuses(
    settings: dict[str, Any], absent: set[str]
) -> None:
    made: Any = WorkConsumer
    consumer = made(settings, "jobs", "group", Admin(), object())
    assert consumer._settings["enable.auto.commit"] is False
    known = {"partition.assignment.strategy", "session.timeout.ms"}
    assert known - consumer._settings.keys() == absent
