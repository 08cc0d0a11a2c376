"""Aborted transactions: only the entries at fault wait or are refused, the others flow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from tests.ledger.test_state_partition import START_MS, entries, fill, make

from headrace.ledger import targets as targets_module
from headrace.ledger.clients import AbortedTransaction, FailedRecord
from headrace.ledger.machine import OutgoingRecord
from headrace.ledger.state_partition import PlannedTransaction, StatePartition
from headrace.ledger.targets import TargetTopics, handle_abort
from headrace.ledger.topics import ServiceTopics

# Its dead letters are what the simple machine of these tests calls `dead`.
NAMES = SimpleNamespace(input="in", state="state", dead_letters="dead")


class Brokers:
    """Answers for metadata; says nothing while it is away."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False
        self.leaderless: set[str] = set()
        self.missing: set[str] = set()

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if topic in self.missing else None
        leader = -1 if topic in self.leaderless else 1
        found = SimpleNamespace(error=error, partitions={0: SimpleNamespace(leader=leader)})
        return SimpleNamespace(topics={topic: found})


class Service:
    """A owner's round: plan, send to topics of which some fail, settle."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.now_s = 1_000.0
        names: Any = NAMES
        self.names: ServiceTopics = names
        self.targets = TargetTopics(self.brokers, self.names, lambda: self.now_s)
        self.state: StatePartition = make()
        self.sent: list[str] = []
        self.failures: dict[str, int] = {}
        self.rested = 0
        self.is_told = True

    def round(self) -> bool:
        """One transaction; False if there was nothing to do."""
        self.state.retry_waiting(self.targets.must_wait)
        plan = self.state.plan(START_MS, 100, self.targets)
        if not plan:
            return False
        failed = self._send(plan)
        if failed is None:
            self.sent += [outgoing.topic for outgoing in plan.sends]
            self.targets.accepted(outgoing.topic for outgoing in plan.sends)
            self.state.committed(plan)
        elif handle_abort(self.state, self.targets, plan, failed, self.names):
            self.rested += 1
        return True

    def _send(self, plan: PlannedTransaction) -> AbortedTransaction | None:
        bad = tuple(
            FailedRecord(outgoing.topic, tag, KafkaError(self.failures[outgoing.topic]))
            for tag, (_, action) in enumerate(plan.items)
            for outgoing in action.send
            if outgoing.topic in self.failures
        )
        if not bad:
            return None
        return AbortedTransaction(bad[0].error, bad if self.is_told else ())

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            self.round()


def service(*topics: str) -> Service:
    made = Service()
    for topic in topics:
        fill(made.state, entries(5, topic=topic))
    return made


def test_a_topic_that_takes_nothing_now_rests_and_the_others_flow() -> None:
    it = service("stuck", "good")
    it.failures["stuck"] = KafkaError._MSG_TIMED_OUT
    it.run(2)
    assert it.sent == ["good"] * 5
    assert it.rested == 0
    assert not it.round()
    it.failures.clear()
    assert not it.round()
    it.now_s += targets_module.PAUSE_SECONDS
    it.run(2)
    assert it.sent[5:] == ["stuck"] * 5


def test_a_topic_that_goes_on_taking_nothing_is_tried_ever_more_seldom() -> None:
    it = service("stuck")
    it.failures["stuck"] = KafkaError.NOT_ENOUGH_REPLICAS
    tried = 0
    for _ in range(600):
        tried += it.round()
        it.now_s += 1
    assert 600 / targets_module.PAUSE_SECONDS_MAX <= tried < 20


def test_a_topic_without_a_leader_is_not_sent_to() -> None:
    it = service("stuck", "good")
    it.brokers.leaderless.add("stuck")
    it.run(3)
    assert it.sent == ["good"] * 5
    it.now_s += 3_600
    it.run(3)
    assert it.sent == ["good"] * 5
    it.brokers.leaderless.clear()
    it.now_s += targets_module.PAUSE_SECONDS
    it.run(2)
    assert it.sent[5:] == ["stuck"] * 5


def test_a_topic_that_denies_all_makes_dead_letters_of_all_at_once() -> None:
    it = service("denied", "good")
    it.failures["denied"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    it.run(2)
    assert sorted(it.sent) == ["dead"] * 5 + ["good"] * 5


def test_a_topic_that_denies_all_is_found_when_nobody_names_it() -> None:
    it = service("denied", "good", "well")
    it.is_told = False
    it.failures["denied"] = KafkaError.TOPIC_AUTHORIZATION_FAILED
    it.run(20)
    assert sorted(it.sent) == ["dead"] * 5 + ["good"] * 5 + ["well"] * 5


def test_dead_letters_that_are_denied_wait_and_hold_nobody() -> None:
    it = service("denied", "good")
    it.failures = {
        "denied": KafkaError.TOPIC_AUTHORIZATION_FAILED,
        "dead": KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
    it.run(6)
    assert it.sent == ["good"] * 5
    it.failures.clear()
    it.now_s += targets_module.REFUSED_SECONDS
    it.run(3)
    assert len(it.sent) == 10


def test_records_that_are_too_large_do_not_keep_others_waiting() -> None:
    it = service("small")
    it.failures["small"] = KafkaError.MSG_SIZE_TOO_LARGE
    it.round()
    fill(it.state, entries(5, topic="good"))
    it.run(2)
    assert it.sent == ["good"] * 5
    it.run(20)
    assert it.sent[5:] == ["dead"] * 5


def test_a_state_topic_that_takes_nothing_lets_the_partition_rest() -> None:
    it = service("good")
    plan = it.state.plan(START_MS, 100, it.targets)
    error = KafkaError(KafkaError.NOT_ENOUGH_REPLICAS)
    failed = AbortedTransaction(error, (FailedRecord(NAMES.state, -1, error),))
    assert handle_abort(it.state, it.targets, plan, failed, it.names)
    it.round()
    assert it.sent == ["good"] * 5


def test_while_no_broker_answers_nobody_is_asked_again_for_each_entry() -> None:
    it = service(*(f"t{number}" for number in range(20)))
    it.brokers.is_away = True
    assert not it.round()
    assert not it.round()
    assert it.brokers.asked == 1
    it.brokers.is_away = False
    it.now_s += targets_module.NO_BROKER_SECONDS
    it.run(2)
    assert len(it.sent) == 100


def test_a_missing_topic_is_waited_for_and_then_refused() -> None:
    it = service("later")
    it.brokers.missing.add("later")
    assert not it.round()
    assert it.targets.must_wait("later")
    it.now_s += targets_module.PATIENCE_SECONDS
    assert not it.targets.must_wait("later")
    assert it.targets(OutgoingRecord("later", None, None)) is not None
    it.round()
    assert it.sent == ["dead"] * 5
