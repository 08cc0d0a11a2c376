"""The owner half of a node: what it does with records, outcomes and lost partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.dispatch.harness import QUICK
from tests.handlers.records import FakeRecord

from headrace.client.errors import RecordTooLarge
from headrace.client.message import Headers
from headrace.dispatch import effects as fx
from headrace.dispatch.consumers import AssignedPartition
from headrace.dispatch.owner_service import OwnerService
from headrace.dispatch.records import WorkHeaders
from headrace.dispatch.tokens.store import Answer, Fence, Put, Revoke, TokenChange, TokenView
from headrace.dispatch.workers import JobRun, done


class Record(FakeRecord):
    """A record as the client library gives it."""

    def __init__(self, offset: int, value: bytes | None, fence: str = "", id: str = "") -> None:
        super().__init__(0, offset, None)
        self._value, self._work = value, WorkHeaders(id, fence, 77)

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> Headers:
        return self._work.headers()

    def timestamp(self) -> tuple[int, int]:
        return (2, 1_000)


class Around:
    """Everything around the owner half, which only notes what it is asked."""

    def __init__(self) -> None:
        self.changes: list[TokenChange] = []
        self.looks: list[int] = []
        self.tasks: list[JobRun] = []
        self.checks: list[fx.Check] = []
        self.sent: list[tuple[str, bytes | None, dict[str, Any]]] = []
        self.is_broken = False
        # Called by every send before it returns, as the library may.
        self.on_send: Callable[[], None] = lambda: None
        self.bytes_max = 1_000
        self.busy = 0
        self.owner = OwnerService("me", "jobs", "jobs.done", QUICK, self)  # type: ignore[arg-type]
        self.owner.connect(self, self, self)  # type: ignore[arg-type]

    def add(self, changes: Iterable[TokenChange], looks: Iterable[int] = ()) -> None:
        self.changes += changes
        self.looks += looks

    def run(self, task: JobRun) -> None:
        self.tasks.append(task)

    def check(self, check: fx.Check) -> None:
        self.checks.append(check)

    def send(self, topic: str, value: bytes | None, **options: Any) -> None:
        if self.is_broken:
            raise BufferError("full")
        if len(value or b"") > self.bytes_max:
            raise RecordTooLarge("the record is too large")
        self.sent.append((topic, value, options))
        self.on_send()

    def states(self) -> list[bytes]:
        return [dict(options["headers"])["headrace-outcome"] for _, _, options in self.sent]

    def acknowledge(self) -> None:
        """The brokers have all that was sent so far."""
        sent, self.sent = self.sent, []
        for _, _, options in sent:
            callback: Callable[..., None] = options.pop("on_delivery")
            callback(object(), None)


@pytest.fixture
def around() -> Around:
    made = Around()
    made.owner.assigned([AssignedPartition(0, 5, 10, 10)])
    assert made.changes == [Put(0, Fence(5, 10))]
    made.owner.take_commits()
    return made


def end(around: Around, answer: object = None) -> None:
    around.owner.ended(around.tasks[-1], done(around.tasks[-1], "me", answer))


def test_a_job_runs_is_answered_and_committed_in_this_order(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a")])
    assert [(task.id, task.value, task.fence) for task in around.tasks] == [
        ("a", b"job", Fence(5, 10))
    ]
    assert around.owner.take_commits() == {}
    end(around)
    # The token goes back at once; the commit waits for the outcome.
    assert around.changes[-1] == Put(0, Fence(5, 11))
    assert (around.states(), around.owner.take_commits()) == ([b"done"], {})
    around.acknowledge()
    assert around.owner.take_commits() == {0: 11}


def test_what_lies_behind_a_running_job_is_refused_at_once(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a"), Record(11, b"copy", "5.10", "b")])
    assert len(around.tasks) == 1
    assert around.states() == [b"refused"]
    headers = dict(around.sent[0][2]["headers"])
    # With its own fence, by which the submitter knows which sending was refused.
    assert (headers["headrace-fence"], headers["headrace-place"]) == (b"5.10", b"0/11")
    around.acknowledge()
    assert around.owner.take_commits() == {}
    end(around)
    around.acknowledge()
    assert around.owner.take_commits() == {0: 12}


def test_an_outcome_that_cannot_be_written_is_tried_again(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a")])
    around.is_broken = True
    end(around)
    assert around.sent == []
    around.is_broken = False
    around.owner.tick()
    assert around.states() == [b"done"]
    around.sent[0][2]["on_delivery"](None, Exception("timed out"))
    around.sent.clear()
    around.owner.tick()
    assert around.states() == [b"done"]
    around.acknowledge()
    assert around.owner.take_commits() == {0: 11}


def test_an_outcome_that_is_acknowledged_at_once_leaves_nothing_behind(around: Around) -> None:
    around.on_send = around.acknowledge
    around.owner.records([Record(10, b"job", "5.10", "a")])
    end(around)
    assert around.owner.take_commits() == {0: 11}
    # The commit was lost in a rebalance: the record is read again, and does not wait forever.
    around.owner.revoked([0])
    around.owner.assigned([AssignedPartition(0, 6, 10, 11)])
    around.owner.records([Record(10, b"job", "5.10", "a")])
    around.owner.answered([], Answer(views={0: None}, age_ms=60_000))
    around.owner.answered([], Answer(views={0: TokenView(Fence(6, 10), "out", "me", 1_000)}))
    around.owner.checked(around.checks[-1], True)
    assert around.owner.take_commits() == {0: 11}


@pytest.mark.parametrize("is_left", [False, True])
def test_an_answer_that_is_too_large_fails_its_job(around: Around, is_left: bool) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a")])
    if is_left:
        around.owner.revoked([0])
    end(around, b"x" * 1_001)
    around.owner.tick()
    assert around.states() == [b"failed"]
    assert b"too large" in dict(around.sent[0][2]["headers"])["headrace-error"]
    around.acknowledge()
    if is_left:
        assert around.changes[-1] == Revoke(0, Fence(5, 10))
    else:
        assert around.owner.take_commits() == {0: 11}


def test_the_copy_of_a_record_is_dropped_and_not_refused(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a"), Record(11, b"job", "5.10", "a")])
    assert (len(around.tasks), around.sent) == (1, [])
    end(around)
    around.owner.records([Record(12, b"job", "5.10", "a")])
    around.acknowledge()
    assert (len(around.tasks), around.owner.take_commits()) == (1, {0: 13})


def test_a_job_of_a_lost_partition_ends_only_when_its_outcome_is_there(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a")])
    around.owner.revoked([0])
    assert not any(isinstance(change, Revoke) for change in around.changes)
    end(around)
    # The new owner looks up the outcome as soon as nothing runs here.
    assert not any(isinstance(change, Revoke) for change in around.changes)
    around.acknowledge()
    assert around.changes[-1] == Revoke(0, Fence(5, 10))
    assert around.owner.take_commits() == {}


def test_commits_that_failed_are_made_again_while_the_partition_is_ours(around: Around) -> None:
    around.owner.restore_commits({0: 10, 7: 3})
    assert around.owner.take_commits() == {0: 10}
    around.owner.restore_commits({0: 10})
    assert around.owner.take_commits([0, 7]) == {0: 10}
    around.owner.revoked([0])
    around.owner.restore_commits({0: 10})
    assert around.owner.take_commits() == {}


def test_a_log_that_lost_its_end_is_followed(around: Around) -> None:
    around.owner.records([Record(10, b"job", "5.10", "a")])
    end(around)
    around.acknowledge()
    # A power failure took offset 10; what is sent next is written there again.
    around.owner.records([Record(9, None)])
    assert around.changes[-1] == Put(0, Fence(5, 10))
    # The store knows a newer fence, so the owner asks the group whether it is still the owner.
    seen = TokenView(Fence(5, 11), "idle", "", 0)
    for _ in range(QUICK.heal_misses):
        around.owner.answered([], Answer(views={0: seen}))
    orders = around.owner.take_orders()
    assert orders is not None
    assert orders.claims == {0: 10}
    around.owner.claimed(0)
    assert around.changes[-1] == Put(0, Fence(5, 10), True)
    around.owner.records([Record(10, b"next", "5.10", "b")])
    assert around.tasks[-1].id == "b"
