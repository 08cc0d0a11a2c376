"""The submitter service: when a job is sent, sent again, and finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.client.delivery import OnDelivery, RecordMetadata
from headrace.client.errors import DeliveryFailed, RecordTooLarge
from headrace.dispatch.records import Outcome, OutcomeState
from headrace.dispatch.spool.port import (
    DoneRead,
    JobDone,
    JobPut,
    JobReturned,
    JobSent,
    SpoolChange,
    SpoolContents,
)
from headrace.dispatch.spool.writer import SpoolCapacity
from headrace.dispatch.submitter_service import (
    RETRY_SECONDS_MAX,
    RETRY_SECONDS_MIN,
    SubmitterService,
)
from headrace.dispatch.tokens.store import Fence, Return, Revoke, Token, TokenChange

TOKEN = Token(3, Fence(1, 7))
LATER = Token(4, Fence(1, 0))


class Around:
    """Everything around the submitter service, which only notes what it is asked."""

    def __init__(self) -> None:
        self.notes: list[SpoolChange] = []
        self.returned: list[TokenChange] = []
        self.finished: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.written: list[tuple[Outcome, OnDelivery]] = []
        self.pauses: list[tuple[float, Callable[[], None]]] = []
        self.capacity = SpoolCapacity(100, 1000, "wait")
        self.submitter = SubmitterService(
            "me",
            "jobs",
            self,  # type: ignore[arg-type]
            self.capacity,
            on_finished=lambda outcome: self.finished.append(outcome.id),
            now_ms=lambda: 1_000,
            write=lambda outcome, written: self.written.append((outcome, written)),
            call_later=lambda delay_s, deed: self.pauses.append((delay_s, deed)),
        )
        self.submitter.connect(self, self, self)  # type: ignore[arg-type]

    def note(self, changes: Sequence[SpoolChange]) -> None:
        self.notes += changes

    def add(self, changes: Iterable[TokenChange], looks: Iterable[int] = ()) -> None:
        self.returned += changes

    def ask(self) -> None: ...

    def send(self, topic: str, value: bytes, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append({"value": value, **options})

    def put(self, *ids: str) -> None:
        self.capacity.reserve(len(ids), len(ids), lambda _error: None)
        self.submitter.stored([JobPut(id, b"x", 1) for id in ids])

    def wait(self) -> float:
        """The first pause passes; how long it was."""
        delay_s, deed = self.pauses.pop(0)
        deed()
        return delay_s

    def deliver(self, offset: int) -> None:
        """The last job that was sent is written."""
        options = self.sent[-1]
        metadata = RecordMetadata("jobs", options["partition"], offset, 0)
        options["on_delivery"](metadata, None)

    def outcome(self, id: str, state: OutcomeState, token: Token = TOKEN, offset: int = 7) -> None:
        found = Outcome(id, state, token.partition, offset, token.fence.text())
        self.submitter.outcomes([found], {0: 1})


@pytest.fixture
def around() -> Around:
    made = Around()
    # How far the done topic was read is kept now and then; not in the way of what follows.
    made.submitter.outcomes([], {0: 0})
    assert made.notes == [DoneRead(0, 0)]
    made.notes.clear()
    return made


def test_a_job_leaves_the_spool_when_the_done_topic_says_so(around: Around) -> None:
    around.put("a")
    around.submitter.granted([TOKEN])
    assert around.sent[0]["partition"] == 3
    assert dict(around.sent[0]["headers"])["headrace-fence"] == b"1.7"
    around.deliver(7)
    assert around.notes == [JobSent("a", 3, 7)]
    assert "a" in around.submitter
    around.outcome("a", "done")
    assert (around.finished, around.notes[-1], around.capacity.jobs) == (["a"], JobDone("a"), 0)
    assert "a" not in around.submitter


def test_a_refused_job_is_sent_again_before_all_others(around: Around) -> None:
    around.put("a", "b")
    around.submitter.granted([TOKEN])
    around.deliver(7)
    around.outcome("a", "refused")
    assert around.notes[-1] == JobReturned("a")
    around.submitter.granted([LATER])
    assert dict(around.sent[-1]["headers"])["headrace-id"] == b"a"
    # What is said about the first sending is old news.
    around.outcome("a", "refused")
    assert around.submitter.want() == 1
    around.outcome("a", "failed", LATER, 0)
    assert around.finished == ["a"]


def test_a_token_that_nothing_was_sent_with_goes_back(around: Around) -> None:
    around.put("a")
    around.error = BufferError("full")
    around.submitter.granted([TOKEN])
    assert (around.returned, around.submitter.want()) == ([Return(*TOKEN)], 0)
    around.error = None
    around.wait()
    around.submitter.granted([LATER])
    assert len(around.sent) == 1
    around.submitter.granted([TOKEN])
    assert around.returned == [Return(*TOKEN)] * 2


def test_the_pause_before_another_try_grows_to_a_limit(around: Around) -> None:
    around.put("a")
    around.error = BufferError("full")
    pauses_s = []
    for _ in range(20):
        around.submitter.granted([TOKEN])
        pauses_s.append(around.wait())
    assert pauses_s == sorted(pauses_s)
    assert (pauses_s[0], pauses_s[-1]) == (RETRY_SECONDS_MIN, RETRY_SECONDS_MAX)


def test_a_job_that_the_brokers_never_take_has_failed(around: Around) -> None:
    around.put("large", "small")
    around.error = RecordTooLarge("it is too large")
    around.submitter.granted([TOKEN])
    # The token is for the next one, and this one is not tried again.
    assert (around.returned, around.submitter.want()) == ([Return(*TOKEN)], 1)
    ((outcome, written),) = around.written
    assert (outcome.id, outcome.state, outcome.error[0]) == ("large", "failed", "RecordTooLarge")
    # Not even that could be written: it is tried again from the beginning.
    written(None, None)
    around.wait()
    assert around.submitter.want() == 2
    around.submitter.outcomes([outcome], {})
    assert around.finished == ["large"]


def test_the_brokers_may_find_a_job_too_large_later(around: Around) -> None:
    around.put("large")
    around.submitter.granted([TOKEN])
    around.sent[0]["on_delivery"](None, RecordTooLarge("it is too large"))
    assert around.returned == [Return(*TOKEN)]
    assert around.written[0][0].state == "failed"


def test_the_token_of_a_partition_that_is_not_there_goes_away(around: Around) -> None:
    around.put("a")
    around.error = DeliveryFailed("nowhere", error=KafkaError(KafkaError._UNKNOWN_PARTITION))
    around.submitter.granted([TOKEN])
    assert around.returned == [Revoke(*TOKEN)]
    around.wait()
    assert around.submitter.want() == 1


def test_the_outcome_of_an_earlier_job_of_the_same_id_is_old_news(around: Around) -> None:
    around.put("a")
    for submitted_ms, finished in ((7, []), (1, ["a"])):
        found = Outcome("a", "done", 3, 7, TOKEN.fence.text(), submitted_ms=submitted_ms)
        around.submitter.outcomes([found], {0: 1})
        assert around.finished == finished


def test_a_job_that_may_have_arrived_is_sent_again_with_another_token(around: Around) -> None:
    around.put("a")
    around.submitter.granted([TOKEN])
    around.sent[0]["on_delivery"](None, Exception("timed out"))
    assert around.returned == []
    around.wait()
    assert around.submitter.want() == 1


def recovered(**sent: tuple[int, int] | None) -> SpoolContents:
    entries = SpoolContents()
    for id, place in sent.items():
        entries.apply([JobPut(id, b"x", 1), *([JobSent(id, *place)] if place else [])])
    return entries


def test_what_an_earlier_life_has_sent_is_not_sent_again(around: Around) -> None:
    around.submitter.recover(recovered(a=(3, 7), b=None))
    assert (around.submitter.want(), around.capacity.jobs) == (1, 2)
    around.outcome("a", "done")
    assert around.finished == ["a"]


def test_what_an_earlier_life_has_sent_is_sent_again_when_refused_there(around: Around) -> None:
    around.submitter.recover(recovered(a=(3, 7)))
    around.outcome("a", "refused", offset=6)
    assert around.submitter.want() == 0
    around.outcome("a", "refused", offset=7)
    assert (around.submitter.want(), around.notes[-1]) == (1, JobReturned("a"))


def test_a_job_passed_over_without_an_outcome_waits_again(around: Around) -> None:
    around.submitter.recover(recovered(old=(3, 7)))
    around.put("new")
    around.submitter.granted([TOKEN])
    around.deliver(8)
    assert around.submitter.overdue(2_000).keys() == {"old", "new"}
    around.submitter.lost({"old": (3, 7), "new": (3, 9), "unknown": (0, 0)})
    assert (around.submitter.want(), around.submitter.machine.counts["lost"]) == (1, 1)
    around.submitter.lost({"new": (3, 8)})
    assert around.submitter.want() == 2


def test_what_others_took_over_is_theirs_and_its_outcome_still_told(around: Around) -> None:
    around.put("a", "b")
    around.submitter.drop_all_but({"b"})
    assert (around.submitter.want(), around.capacity.jobs) == (1, 1)
    assert "a" in around.submitter
    around.outcome("a", "done")
    assert around.finished == ["a"]
    assert JobDone("a") not in around.notes
    assert "a" not in around.submitter
