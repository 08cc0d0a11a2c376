"""Half messages end to end, on Headrace and on Apache Kafka, with a service that asks soon."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.client.kafkas import LIVELY
from tests.handlers.running import read_all
from tests.ledger.half.conftest import QUICK, HalfKafka
from tests.waiting import WAIT_SECONDS, wait_until

from headrace import cli
from headrace.client.message import Message
from headrace.handlers.app import App
from headrace.ledger.delay.service import delay_service
from headrace.ledger.half.commands import Prepared
from headrace.ledger.half.service import half_service


class Order(msgspec.Struct):
    n: int


@contextmanager
def running(app: App) -> Iterator[App]:
    with app:
        wait_until(lambda: all(runner.ready.is_set() for runner in app.runners), "the app is ready")
        yield app


def leave_undecided(kafka: HalfKafka, app: App, topic: str, group: str, order: Order) -> str:
    """As a sender that dies before it can say what became of its local transaction."""
    id = kafka.name("orphan")
    value = msgspec.json.encode(order)
    app.context.halves.prepare(id, Prepared(topic, group, b"key", value), None).result(WAIT_SECONDS)
    return id


def test_a_block_delivers_once_or_never(half_kafka: HalfKafka) -> None:
    topic = half_kafka.topic("orders")
    app = half_kafka.app()
    with app.half(topic, Order(1), group="shop", key="k", headers={"color": "red"}) as first:
        assert half_kafka.state(first.id) in (None, "waiting")
    with pytest.raises(LookupError), app.half(topic, Order(2), group="shop") as second:
        raise LookupError

    async def main() -> str:
        async with app.half(topic, Order(3), group="shop") as half:
            await asyncio.sleep(0)
        return half.id

    third = asyncio.run(main())
    half_kafka.wait_state(first.id, "committed")
    half_kafka.wait_state(second.id, "rolled back")
    half_kafka.wait_state(third, "committed")
    app.stop()
    records = read_all(half_kafka.bootstrap, topic, 2)
    assert sorted(record.value() for record in records) == [b'{"n":1}', b'{"n":3}']
    (record,) = (record for record in records if record.value() == b'{"n":1}')
    assert record.key() == b"k"
    assert record.headers() == [("color", b"red"), ("headrace-id", first.id.encode())]


def test_a_plain_client_needs_only_headers(half_kafka: HalfKafka) -> None:
    topic = half_kafka.topic("orders")
    a, b, c = (half_kafka.name(f"plain-{number}") for number in range(3))
    half_kafka.say("prepare", a, b"one", target=topic, group="plain")
    half_kafka.say("prepare", b, b"two", target=topic, group="plain")
    half_kafka.say("commit", c)
    half_kafka.say("prepare", c, b"three", target=topic, group="plain")
    half_kafka.say("commit", a)
    half_kafka.say("rollback", b)
    half_kafka.say("commit", a)
    half_kafka.wait_state(a, "committed")
    half_kafka.wait_state(b, "rolled back")
    half_kafka.wait_state(c, "committed")
    assert sorted(half_kafka.values(topic, 2)) == [b"one", b"three"]


def test_nonsense_is_a_dead_letter_with_its_reason(half_kafka: HalfKafka) -> None:
    id = half_kafka.name("nonsense")
    half_kafka.say("perhaps", id, b"nonsense")
    half_kafka.say("rollback", id)
    half_kafka.wait_state(id, "early rollback")
    letter = half_kafka.dead_letter(id)
    assert letter.value() == b"nonsense"
    assert b"use prepare, commit or rollback" in dict(letter.headers())["headrace-error"]


def test_any_live_member_of_the_group_decides_for_one_that_died(half_kafka: HalfKafka) -> None:
    topic, group = half_kafka.topic("orders"), half_kafka.name("shop")
    asked: list[tuple[str, int]] = []
    apps = []
    for member in ("first", "second"):
        app = half_kafka.app()

        @app.half_checker(group)
        def check(order: Order, message: Message, member: str = member) -> bool | None:
            asked.append((member, order.n))
            # The third does not know it when it is asked for the first time.
            known = order.n < 3 or asked.count((member, 3)) > 1
            return order.n != 2 if known else None

        apps.append(app)
    dead, alive = apps
    with running(dead), running(alive):
        pass
    with running(alive):
        ids = [leave_undecided(half_kafka, alive, topic, group, Order(n)) for n in (1, 2, 3)]
        half_kafka.wait_state(ids[0], "committed")
        half_kafka.wait_state(ids[1], "rolled back")
        half_kafka.wait_state(ids[2], "committed")
    assert {member for member, _ in asked} == {"second"}
    assert sorted(half_kafka.values(topic, 2)) == [b'{"n":1}', b'{"n":3}']


def test_an_async_checker_and_a_failing_one(half_kafka: HalfKafka) -> None:
    topic, group = half_kafka.topic("orders"), half_kafka.name("shop")
    app = half_kafka.app()
    tries: list[int] = []

    @app.half_checker(group)
    async def check(order: Order) -> bool | None:
        await asyncio.sleep(0)
        tries.append(order.n)
        if len(tries) == 1:
            raise OSError("the database is away")
        return True

    alarms: list[str] = []
    app.on_alarm(lambda alarm: alarms.append(alarm.name))
    with running(app):
        id = leave_undecided(half_kafka, app, topic, group, Order(1))
        half_kafka.wait_state(id, "committed")
    assert "half-check-failed" in alarms
    assert half_kafka.values(topic, 1) == [b'{"n":1}']


def test_what_nobody_answers_for_is_parked_shown_and_decided_by_a_person(
    half_kafka: HalfKafka, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = half_kafka.topic("orders"), half_kafka.name("nobody")
    parked, dropped = half_kafka.name("parked"), half_kafka.name("dropped")
    for id in (parked, dropped):
        half_kafka.say("prepare", id, target=topic, group=group)
    for id in (parked, dropped):
        half_kafka.wait_state(id, "parked")
        half_kafka.wait_rung("half-parked", id)
    at = ("--bootstrap", half_kafka.bootstrap)
    assert cli.run_command(["half", "list", "--group", group, *at]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[:4] for line in listed[1:]) == [
        [dropped, "parked", topic, group],
        [parked, "parked", topic, group],
    ]
    assert cli.run_command(["half", "show", parked, *at]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["value"], shown["key"], shown["checks"]) == ("payload", "key", QUICK.checks_max)
    assert cli.run_command(["half", "resolve", parked, "--commit", *at]) == 0
    assert cli.run_command(["half", "resolve", dropped, "--rollback", *at]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{parked} is committed",
        f"{dropped} is rolled back",
    ]
    assert half_kafka.values(topic, 1) == [b"payload"]
    assert cli.run_command(["half", "resolve", parked, "--rollback", *at]) == 1
    assert f"{parked} is committed already" in capsys.readouterr().err
    assert cli.run_command(["half", "show", "no-such-id", *at]) == 1
    assert "there is no half message with id" in capsys.readouterr().err
    arguments = ["half", "list", "--all", "--state", "committed", "--group", group, "-o", "json"]
    assert cli.run_command([*arguments, *at]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [parked]


def test_the_second_decision_is_an_alarm(half_kafka: HalfKafka) -> None:
    topic, id = half_kafka.topic("orders"), half_kafka.name("torn")
    half_kafka.say("prepare", id, target=topic, group="shop")
    half_kafka.say("rollback", id)
    half_kafka.say("commit", id)
    half_kafka.wait_rung("half-contradiction", id)
    half_kafka.wait_state(id, "rolled back")
    assert half_kafka.values(topic, 0) == []


def test_what_its_target_refuses_is_a_dead_letter(half_kafka: HalfKafka) -> None:
    id = half_kafka.name("lost")
    value = b"x" * 900_000
    topic = half_kafka.topic("small")
    set_limit(half_kafka.bootstrap, topic)
    half_kafka.say("prepare", id, value, target=topic, group="shop")
    half_kafka.say("commit", id)
    half_kafka.wait_rung("half-undeliverable", id)
    known = half_kafka.known(id)
    assert known is not None
    assert known.refusal
    assert half_kafka.dead_letter(id).value() == value


def test_half_and_delay_together(half_kafka: HalfKafka) -> None:
    topic = half_kafka.topic("orders")
    app = half_kafka.app()
    service = delay_service(half_kafka.settings)
    service.start()
    try:
        with app.half(topic, Order(1), group="shop", after="3s") as half:
            pass
        committed_at = time.time()
        (record,) = read_all(half_kafka.bootstrap, topic, 1)
        assert record.value() == b'{"n":1}'
        assert dict(record.headers())["headrace-id"] == half.id.encode()
        # By the clock of this same machine; the target has the sender's time.
        assert record.timestamp()[1] / 1000 >= committed_at + 2
    finally:
        service.stop()
        app.stop()


def test_instances_share_and_take_over(half_kafka: HalfKafka) -> None:
    topic = half_kafka.topic("orders")
    app = half_kafka.app()
    other = half_service({**half_kafka.settings, **LIVELY}, limits=QUICK)
    other.start()
    try:
        wait_until(lambda: other.stats.owned > 0, "the second instance has a share")
        for n in range(20):
            with app.half(topic, Order(n), group="shop"):
                pass
    finally:
        other.stop()
    for n in range(20, 40):
        with app.half(topic, Order(n), group="shop"):
            pass
    values = half_kafka.values(topic, 40)
    assert sorted(json.loads(value)["n"] for value in values) == list(range(40))
    app.stop()


def set_limit(bootstrap: str, topic: str) -> None:
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_SECONDS)
