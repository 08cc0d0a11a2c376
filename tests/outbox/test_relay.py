"""The relay, step by step, with a producer that answers as the test wants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from tests.handlers.fake_kafka import FakeProducer, failure
from tests.handlers.manual_clock import ManualClock

from headrace.client.errors import RateLimited, TopicSwitchedOff
from headrace.outbox.relay import LEASE_MS, Relay, RelayLimits
from headrace.store import Store, StoreUnavailable, open_store
from headrace.store.outbox import OutboxRow
from headrace.telemetry.alarms import Alarm, Alarms

FIVE_MINUTES_MS = 300_000
HOUR_MS = 3_600_000


class Stage:
    """A store, a producer, time and alarms, and relays that share them."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.store: Store = open_store(f"sqlite:///{folder / 'shop.db'}", clock=self.clock)
        self.store.create()
        self.producer = FakeProducer()
        self.rung: list[Alarm] = []
        self.relay = self.new_relay("first")

    def new_relay(self, owner: str, producer: FakeProducer | None = None, **options: int) -> Relay:
        alarms = Alarms()
        alarms.add(self.rung.append)
        return Relay(
            self.store,
            producer or self.producer,
            owner=owner,
            alarms=alarms,
            limits=RelayLimits(**options),
        )

    def send(
        self, topic: str = "orders", *, key: str | None = None, confirm_by: str | Sequence[str] = ()
    ) -> str:
        with self.store.begin() as tx:
            return tx.send(topic, b"v", key=key, confirm_by=confirm_by)

    def row(self, id: str) -> OutboxRow:
        found = self.store.outbox.find(id)
        assert found is not None
        return found

    def alarms(self) -> list[str]:
        names: list[str] = [alarm.name for alarm in self.rung]
        self.rung.clear()
        return names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.store.close()


def test_a_message_goes_out_once_with_its_id(stage: Stage) -> None:
    id = stage.send(key="k")
    assert stage.relay.step() == 1
    assert stage.relay.step() == 0
    (record,) = stage.producer.written
    assert (record.topic, record.key, record.value) == ("orders", b"k", b"v")
    assert record.headers == {"headrace-id": id.encode()}
    assert stage.row(id).state == "sent"


def test_a_message_says_who_is_to_confirm_it(stage: Stage) -> None:
    id = stage.send(confirm_by=["a", "b"])
    stage.send(confirm_by="any")
    stage.relay.step()
    stage.store.outbox.confirm([(id, "a")])
    stage.clock.pass_ms(FIVE_MINUTES_MS)
    stage.relay.step()
    asked = [record.headers["headrace-confirm"] for record in stage.producer.written]
    # Who has confirmed need not do it again.
    assert asked == [b'["a","b"]', b"[]", b'["b"]', b"[]"]


def test_the_unconfirmed_is_sent_again_with_its_id_and_then_given_up(stage: Stage) -> None:
    relay = stage.new_relay("patient", confirm_within_ms=1_000, sends_max=3)
    id = stage.send(confirm_by=["a"])
    for sends in (1, 2, 3):
        assert relay.step() == 1
        assert relay.step() == 0
        assert stage.row(id).sends == sends
        assert stage.alarms() == []
        stage.clock.pass_ms(1_000)
    assert relay.step() == 0
    assert stage.alarms() == ["outbox-failed"]
    assert stage.producer.ids == [id] * 3
    assert stage.row(id).state == "failed"


def test_a_crash_before_the_mark_sends_again_with_the_same_id(stage: Stage) -> None:
    id = stage.send()

    def crash() -> None:
        raise SystemExit

    stage.producer.on_flush = crash
    with pytest.raises(SystemExit):
        stage.relay.step()
    assert stage.row(id).state == "pending"
    stage.producer.on_flush = None
    next_one = stage.new_relay("second")
    assert next_one.step() == 0
    stage.clock.pass_ms(LEASE_MS)
    assert next_one.step() == 1
    assert stage.producer.ids == [id, id]


def test_one_of_two_relays_works_and_the_other_takes_over(stage: Stage) -> None:
    other_producer = FakeProducer()
    other = stage.new_relay("second", other_producer)
    first_id = stage.send()
    assert (stage.relay.step(), other.step()) == (1, 0)
    second_id = stage.send()
    assert (other.step(), stage.relay.step()) == (0, 1)
    third_id = stage.send()
    # The first one sleeps; its lease ends.
    stage.clock.pass_ms(LEASE_MS)
    assert (other.step(), stage.relay.step()) == (1, 0)
    assert stage.producer.ids == [first_id, second_id]
    assert other_producer.ids == [third_id]


def test_a_late_relay_does_no_harm(stage: Stage) -> None:
    other = stage.new_relay("second", FakeProducer())
    id = stage.send(confirm_by=["a"])

    def sleep_too_long() -> None:
        stage.producer.on_flush = None
        stage.clock.pass_ms(LEASE_MS)
        assert other.step() == 1
        stage.store.outbox.confirm([(id, "a")])

    stage.producer.on_flush = sleep_too_long
    stage.relay.step()
    found = stage.row(id)
    assert (found.state, found.sends, found.due_ms) == ("confirmed", 2, None)


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_what_can_never_be_sent_fails_with_an_alarm_and_does_not_block(
    stage: Stage, code: int
) -> None:
    stage.producer.answers["orders"] = failure(code)
    bad, good = stage.send(), stage.send("other")
    assert stage.relay.step() == 1
    assert stage.row(bad).state == "failed"
    assert stage.row(good).state == "sent"
    assert stage.alarms() == ["outbox-failed"]


def test_a_topic_that_fails_is_held_as_a_whole_and_in_order(stage: Stage) -> None:
    stage.producer.answers["orders"] = failure(KafkaError.UNKNOWN_TOPIC_OR_PART)
    ids = [stage.send(), stage.send()]
    stage.relay.step()
    assert stage.alarms() == ["outbox-held"]
    assert stage.row(ids[0]).error
    other = stage.send("other")
    ids.append(stage.send())
    assert stage.relay.step() == 1
    assert stage.producer.ids == [other]
    stage.clock.pass_ms(1_000)
    stage.relay.step()
    assert stage.alarms() == []
    del stage.producer.answers["orders"]
    stage.clock.pass_ms(1_999)
    assert stage.relay.step() == 0
    stage.clock.pass_ms(1)
    assert stage.relay.step() == 3
    assert stage.producer.ids == [other, *ids]
    assert stage.row(ids[0]).error is None


class Switches:
    def __init__(self) -> None:
        self.refusals: dict[str, Exception] = {}

    def admit(self, topic: str, records: int, most_s: float) -> float:
        if topic in self.refusals:
            raise self.refusals[topic]
        return 0.0


def test_a_topic_that_is_off_or_limited_stays_in_the_outbox(stage: Stage) -> None:
    switches = Switches()
    relay = Relay(stage.store, stage.producer, switches, owner="first")
    off, limited, on = stage.send("off"), stage.send("limited"), stage.send("on")
    switches.refusals = {"off": TopicSwitchedOff("off"), "limited": RateLimited("enough")}
    assert relay.step() == 1
    switches.refusals = {}
    stage.clock.pass_ms(100)
    assert relay.step() == 1
    stage.clock.pass_ms(900)
    assert relay.step() == 1
    assert stage.producer.ids == [on, limited, off]


def test_what_was_sent_while_the_store_went_away_is_marked_later(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = stage.send()
    begin = stage.store.begin

    def unavailable() -> None:
        raise StoreUnavailable("gone")

    stage.relay.step()
    assert stage.producer.ids == [id]
    later = stage.send()
    monkeypatch.setattr(stage.store, "begin", unavailable)
    with pytest.raises(StoreUnavailable):
        stage.relay.step()
    with pytest.raises(StoreUnavailable):
        stage.relay.step()
    monkeypatch.setattr(stage.store, "begin", begin)
    assert stage.relay.step() == 0
    assert stage.producer.ids == [id, later]
    assert stage.row(later).state == "sent"


def test_a_relay_that_takes_over_tells_of_what_has_failed(stage: Stage) -> None:
    stage.producer.answers["orders"] = failure(KafkaError.MSG_SIZE_TOO_LARGE)
    stage.send()
    stage.relay.step()
    stage.alarms()
    stage.clock.pass_ms(LEASE_MS)
    stage.new_relay("second").step()
    assert stage.alarms() == ["outbox-failed"]


def test_what_is_done_is_removed_after_its_time(stage: Stage) -> None:
    relay = stage.new_relay("first", keep_ms=HOUR_MS)
    done, waiting = stage.send(), stage.send(confirm_by=["a"])
    relay.step()
    stage.clock.pass_ms(HOUR_MS + 1)
    relay.step()
    assert stage.store.outbox.find(done) is None
    assert stage.row(waiting).sends == 2


def test_a_batch_is_bounded(stage: Stage) -> None:
    relay = stage.new_relay("first", batch_rows=2)
    for _ in range(3):
        stage.send()
    assert [relay.step(), relay.step(), relay.step()] == [2, 1, 0]
