"""The submitting half of a node: when an item is sent, sent again, and finished."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headrace.client.delivery import OnDelivery, RecordMetadata
from headrace.client.errors import DeliveryFailed, RecordTooLarge
from headrace.dispatch.fences import Fence, Token
from headrace.dispatch.outcomes import Outcome, State
from headrace.dispatch.room import Room
from headrace.dispatch.spool.changes import Back, Change, Done, Entries, Put, Read, Sent
from headrace.dispatch.submitting import AGAIN_SECONDS_MAX, AGAIN_SECONDS_MIN, Submitting
from headrace.dispatch.tokens import Change as TokenChange
from headrace.dispatch.tokens import Return, Revoke

TOKEN = Token(3, Fence(1, 7))
LATER = Token(4, Fence(1, 0))


class Around:
    """Everything around the submitting half, which only notes what it is asked."""

    def __init__(self) -> None:
        self.notes: list[Change] = []
        self.returned: list[TokenChange] = []
        self.finished: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.written: list[tuple[Outcome, OnDelivery]] = []
        self.pauses: list[tuple[float, Callable[[], None]]] = []
        self.room = Room(100, 1000, "wait")
        self.submitting = Submitting(
            "me",
            "jobs",
            self,  # type: ignore[arg-type]
            self.room,
            on_finished=lambda outcome: self.finished.append(outcome.id),
            now_ms=lambda: 1_000,
            write=lambda outcome, written: self.written.append((outcome, written)),
            later=lambda delay_s, deed: self.pauses.append((delay_s, deed)),
        )
        self.submitting.connect(self, self)  # type: ignore[arg-type]

    def note(self, changes: Sequence[Change]) -> None:
        self.notes += changes

    def add(self, changes: Iterable[TokenChange], looks: Iterable[int] = ()) -> None:
        self.returned += changes

    def ask(self) -> None: ...

    def send(self, topic: str, value: bytes, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append({"value": value, **options})

    def put(self, *ids: str) -> None:
        self.room.enter(len(ids), len(ids), lambda _error: None)
        self.submitting.kept([Put(id, b"x", 1) for id in ids])

    def wait(self) -> float:
        """The first pause passes; how long it was."""
        delay_s, deed = self.pauses.pop(0)
        deed()
        return delay_s

    def deliver(self, offset: int) -> None:
        """The last item that was sent is written."""
        options = self.sent[-1]
        metadata = RecordMetadata("jobs", options["partition"], offset, 0)
        options["on_delivery"](metadata, None)

    def outcome(self, id: str, state: State, token: Token = TOKEN, offset: int = 7) -> None:
        told = Outcome(id, state, token.partition, offset, token.fence.text())
        self.submitting.outcomes([told], {0: 1})


@pytest.fixture
def around() -> Around:
    made = Around()
    # How far the done topic was read is kept now and then; not in the way of what follows.
    made.submitting.outcomes([], {0: 0})
    assert made.notes == [Read(0, 0)]
    made.notes.clear()
    return made


def test_an_item_leaves_the_spool_when_the_done_topic_says_so(around: Around) -> None:
    around.put("a")
    around.submitting.granted([TOKEN])
    assert around.sent[0]["partition"] == 3
    assert dict(around.sent[0]["headers"])["headrace-fence"] == b"1.7"
    around.deliver(7)
    assert around.notes == [Sent("a", 3, 7)]
    assert "a" in around.submitting
    around.outcome("a", "done")
    assert (around.finished, around.notes[-1], around.room.items) == (["a"], Done("a"), 0)
    assert "a" not in around.submitting


def test_a_refused_item_is_sent_again_before_all_others(around: Around) -> None:
    around.put("a", "b")
    around.submitting.granted([TOKEN])
    around.deliver(7)
    around.outcome("a", "refused")
    assert around.notes[-1] == Back("a")
    around.submitting.granted([LATER])
    assert dict(around.sent[-1]["headers"])["headrace-id"] == b"a"
    # What is said about the first sending is old news.
    around.outcome("a", "refused")
    assert around.submitting.want() == 1
    around.outcome("a", "failed", LATER, 0)
    assert around.finished == ["a"]


def test_a_token_that_nothing_was_sent_with_goes_back(around: Around) -> None:
    around.put("a")
    around.error = BufferError("full")
    around.submitting.granted([TOKEN])
    assert (around.returned, around.submitting.want()) == ([Return(*TOKEN)], 0)
    around.error = None
    around.wait()
    around.submitting.granted([LATER])
    assert len(around.sent) == 1
    around.submitting.granted([TOKEN])
    assert around.returned == [Return(*TOKEN)] * 2


def test_the_pause_before_another_try_grows_to_a_limit(around: Around) -> None:
    around.put("a")
    around.error = BufferError("full")
    pauses_s = []
    for _ in range(20):
        around.submitting.granted([TOKEN])
        pauses_s.append(around.wait())
    assert pauses_s == sorted(pauses_s)
    assert (pauses_s[0], pauses_s[-1]) == (AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX)


def test_a_job_that_the_brokers_never_take_has_failed(around: Around) -> None:
    around.put("large", "small")
    around.error = RecordTooLarge("it is too large")
    around.submitting.granted([TOKEN])
    # The token is for the next one, and this one is not tried again.
    assert (around.returned, around.submitting.want()) == ([Return(*TOKEN)], 1)
    ((outcome, written),) = around.written
    assert (outcome.id, outcome.state, outcome.error[0]) == ("large", "failed", "RecordTooLarge")
    # Not even that could be written: it is tried again from the beginning.
    written(None, None)
    around.wait()
    assert around.submitting.want() == 2
    around.submitting.outcomes([outcome], {})
    assert around.finished == ["large"]


def test_the_brokers_may_find_a_job_too_large_later(around: Around) -> None:
    around.put("large")
    around.submitting.granted([TOKEN])
    around.sent[0]["on_delivery"](None, RecordTooLarge("it is too large"))
    assert around.returned == [Return(*TOKEN)]
    assert around.written[0][0].state == "failed"


def test_the_token_of_a_partition_that_is_not_there_goes_away(around: Around) -> None:
    around.put("a")
    around.error = DeliveryFailed("nowhere", error=KafkaError(KafkaError._UNKNOWN_PARTITION))
    around.submitting.granted([TOKEN])
    assert around.returned == [Revoke(*TOKEN)]
    around.wait()
    assert around.submitting.want() == 1


def test_the_outcome_of_an_earlier_job_of_the_same_id_is_old_news(around: Around) -> None:
    around.put("a")
    for submitted_ms, finished in ((7, []), (1, ["a"])):
        told = Outcome("a", "done", 3, 7, TOKEN.fence.text(), submitted_ms=submitted_ms)
        around.submitting.outcomes([told], {0: 1})
        assert around.finished == finished


def test_an_item_that_may_have_arrived_is_sent_again_with_another_token(around: Around) -> None:
    around.put("a")
    around.submitting.granted([TOKEN])
    around.sent[0]["on_delivery"](None, Exception("timed out"))
    assert around.returned == []
    around.wait()
    assert around.submitting.want() == 1


def recovered(**sent: tuple[int, int] | None) -> Entries:
    entries = Entries()
    for id, place in sent.items():
        entries.apply([Put(id, b"x", 1), *([Sent(id, *place)] if place else [])])
    return entries


def test_what_an_earlier_life_has_sent_is_not_sent_again(around: Around) -> None:
    around.submitting.take_in(recovered(a=(3, 7), b=None))
    assert (around.submitting.want(), around.room.items) == (1, 2)
    around.outcome("a", "done")
    assert around.finished == ["a"]


def test_what_an_earlier_life_has_sent_is_sent_again_when_refused_there(around: Around) -> None:
    around.submitting.take_in(recovered(a=(3, 7)))
    around.outcome("a", "refused", offset=6)
    assert around.submitting.want() == 0
    around.outcome("a", "refused", offset=7)
    assert (around.submitting.want(), around.notes[-1]) == (1, Back("a"))


def test_an_item_passed_over_without_an_outcome_waits_again(around: Around) -> None:
    around.submitting.take_in(recovered(old=(3, 7)))
    around.put("new")
    around.submitting.granted([TOKEN])
    around.deliver(8)
    assert around.submitting.overdue(2_000).keys() == {"old", "new"}
    around.submitting.lost({"old": (3, 7), "new": (3, 9), "unknown": (0, 0)})
    assert (around.submitting.want(), around.submitting.sender.counts["lost"]) == (1, 1)
    around.submitting.lost({"new": (3, 8)})
    assert around.submitting.want() == 2


def test_what_others_took_over_is_theirs_and_its_outcome_still_told(around: Around) -> None:
    around.put("a", "b")
    around.submitting.leave_all_but({"b"})
    assert (around.submitting.want(), around.room.items) == (1, 1)
    assert "a" in around.submitting
    around.outcome("a", "done")
    assert around.finished == ["a"]
    assert Done("a") not in around.notes
    assert "a" not in around.submitting
