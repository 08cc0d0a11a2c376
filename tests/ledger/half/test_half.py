"""The block of a half message: what it prepares, what it decides, and when it asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from tests.waiting import WAIT_SECONDS, wait_until

from headrace.client.delivery import Sent
from headrace.client.errors import DeliveryFailed
from headrace.client.message import Message
from headrace.errors import HandlerError
from headrace.handlers.app import App
from headrace.handlers.half.half import Half
from headrace.ledger.half.commands import Prepared
from headrace.telemetry.alarms import Alarm

Run = Callable[[Half, Exception | None, str], None]


class Record:
    """As the library reports one."""

    def set_value(self, _value: None) -> None: ...

    def topic(self) -> str:
        return "headrace.half"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class FakeSender:
    """Takes down what is sent; fails on request."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.prepared: list[Prepared] = []
        self.check_after_ms: int | None = None
        self.failing: set[str] = set()

    def prepare(self, id: str, prepared: Prepared, check_after_ms: int | None) -> Sent:
        self.prepared.append(prepared)
        self.check_after_ms = check_after_ms
        return self._sent("prepare")

    def decide(self, id: str, *, is_commit: bool) -> Sent:
        return self._sent("commit" if is_commit else "rollback")

    def _sent(self, kind: str) -> Sent:
        self.said.append(kind)
        sent = Sent()
        error = KafkaError(KafkaError._MSG_TIMED_OUT) if kind in self.failing else None
        sent(error, Record())
        return sent


class Bench:
    """An app whose half messages go nowhere."""

    def __init__(self) -> None:
        self.app = App("127.0.0.1:1")
        self.alarms: list[Alarm] = []
        self.app.on_alarm(self.alarms.append)
        self.sender = FakeSender()
        cast(Any, self.app.context).__dict__["halves"] = self.sender
        cast(Any, self.app.context).__dict__["switches"] = None
        self.answer: bool | Exception | None = None
        self.asked: list[str] = []

    def check(self, order: dict[str, int], message: Message) -> bool | None:
        assert order == {"n": 1}
        self.asked.append(message.id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def check_async(self, order: dict[str, int], message: Message) -> bool | None:
        return self.check(order, message)

    def half(self, **options: Any) -> Half:
        return self.app.half("orders", {"n": 1}, **{"group": "shop", **options})


def run_sync(half: Half, error: Exception | None, wish: str) -> None:
    with half:
        if wish:
            getattr(half, wish)()
        if error is not None:
            raise error


def run_async(half: Half, error: Exception | None, wish: str) -> None:
    async def main() -> None:
        async with half:
            if wish:
                getattr(half, wish)()
            if error is not None:
                raise error

    asyncio.run(main())


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(params=[run_sync, run_async])
def run(request: pytest.FixtureRequest) -> Run:
    return cast(Run, request.param)


def test_a_block_that_ends_well_is_committed(bench: Bench, run: Run) -> None:
    half = bench.half(key="k", headers={"color": "red"})
    run(half, None, "")
    assert bench.sender.said == ["prepare", "commit"]
    assert bench.sender.prepared == [
        Prepared("orders", "shop", b"k", b'{"n":1}', (("color", b"red"),))
    ]
    assert half.state == "committed"


def test_a_block_that_raises_is_rolled_back(bench: Bench, run: Run) -> None:
    half = bench.half()
    with pytest.raises(LookupError):
        run(half, LookupError(), "")
    assert bench.sender.said == ["prepare", "rollback"]
    assert half.state == "rolled back"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "said", "state"),
    [
        (True, ["prepare", "commit"], "committed"),
        (False, ["prepare", "rollback"], "rolled back"),
        (None, ["prepare"], "undecided"),
        (ValueError("away"), ["prepare"], "undecided"),
    ],
)
def test_a_checker_knows_better_than_an_exception(
    bench: Bench, run: Run, answer: Any, said: list[str], state: str, is_async: bool
) -> None:
    bench.app.half_checker("shop")(bench.check_async if is_async else bench.check)
    bench.answer = answer
    half = bench.half()
    with pytest.raises(LookupError):
        run(half, LookupError(), "")
    assert bench.sender.said == said
    assert half.state == state
    assert bench.asked == [half.id]
    expected = ["half-check-failed"] if isinstance(answer, Exception) else []
    assert [alarm.name for alarm in bench.alarms] == expected
    bench.app.context.loop.stop()


def test_nobody_is_asked_when_the_block_has_said_it(bench: Bench, run: Run) -> None:
    bench.app.half_checker("shop")(bench.check)
    with pytest.raises(LookupError):
        run(bench.half(), LookupError(), "commit")
    run(bench.half(), None, "rollback")
    run(bench.half(), None, "")
    assert bench.sender.said == ["prepare", "commit", "prepare", "rollback", "prepare", "commit"]
    assert bench.asked == []


def test_what_was_not_prepared_never_runs_its_block(bench: Bench, run: Run) -> None:
    bench.sender.failing = {"prepare"}
    half = bench.half()
    with pytest.raises(DeliveryFailed):
        run(half, AssertionError("the block ran"), "")
    # It may have been written nevertheless.
    assert bench.sender.said == ["prepare", "rollback"]
    assert half.state == "new"


def test_a_decision_that_is_not_written_is_an_alarm_and_no_error(bench: Bench, run: Run) -> None:
    bench.sender.failing = {"commit"}
    half = bench.half()
    run(half, None, "")
    assert half.state == "undecided"
    assert [alarm.name for alarm in bench.alarms] == ["half-undecided"]


def test_a_block_has_a_half_of_its_own(bench: Bench, run: Run) -> None:
    half = bench.half()
    run(half, None, "")
    with pytest.raises(HandlerError, match="is committed"):
        run(half, None, "")


def test_a_cancelled_block_is_one_that_raises(bench: Bench) -> None:
    half = bench.half()

    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            async with half:
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert bench.sender.said == ["prepare", "rollback"]


def test_the_group_is_that_of_the_only_checker(bench: Bench) -> None:
    with pytest.raises(HandlerError, match="0 producer groups"):
        bench.app.half("orders", b"")
    bench.app.half_checker("till")(bench.check)
    bench.answer = True
    with bench.app.half("orders", {"n": 1}):
        pass
    assert bench.sender.prepared[0].group == "till"
    bench.app.half_checker("shop")(bench.check)
    with pytest.raises(HandlerError, match="2 producer groups"):
        bench.app.half("orders", b"")


@pytest.mark.parametrize(
    ("options", "delay"),
    [
        ({"after": "15m"}, ("headrace-delay", "900000ms")),
        ({"at": 1_800_000_000_000}, ("headrace-deliver-at", "1800000000000")),
        ({"at": datetime(2030, 1, 1, tzinfo=UTC)}, ("headrace-deliver-at", "1893456000000")),
    ],
)
def test_half_and_delay_together(
    bench: Bench, options: dict[str, Any], delay: tuple[str, str]
) -> None:
    with bench.half(check_after="2m", **options):
        pass
    assert bench.sender.prepared[0].delay == delay
    assert bench.sender.check_after_ms == 120_000


@pytest.mark.parametrize(
    ("topic", "options", "reason"),
    [
        ("no topic", {}, "is not a valid topic name"),
        ("headrace.half", {}, "is an internal topic"),
        ("orders", {"group": "a b"}, "the producer group"),
        ("orders", {"id": ""}, "an id has 1 to 1024 bytes"),
        ("orders", {"check_after": "soon"}, "is not a duration"),
        ("orders", {"after": "1s", "at": 1}, "not both"),
        ("orders", {"after": "4000000d"}, "after the year 9999"),
        ("orders", {"at": -1}, "is not a time"),
        ("orders", {"headers": {"headrace-target": "x"}}, "set by the arguments"),
    ],
)
def test_what_could_never_be_delivered_is_refused_before_anything_is_sent(
    bench: Bench, topic: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(HandlerError, match=reason):
        bench.app.half(topic, b"", **{"group": "shop", **options})


def test_what_is_too_large_for_a_record_is_refused(bench: Bench) -> None:
    with pytest.raises(HandlerError, match="too large"):
        bench.app.half("orders", bytes(64 << 20), group="shop")


def test_a_checker_only_looks(bench: Bench) -> None:
    def with_tx(order: bytes, tx: Any) -> bool:
        return True

    with pytest.raises(HandlerError, match="takes a Transaction"):
        bench.app.half_checker("shop")(with_tx)
    with pytest.raises(HandlerError, match="the producer group"):
        bench.app.half_checker("a b")
    bench.app.half_checker("shop")(bench.check)
    with pytest.raises(HandlerError, match="two checkers"):
        bench.app.half_checker("shop")(bench.check)


def test_a_checker_says_yes_no_or_nothing(bench: Bench) -> None:
    bench.app.half_checker("shop")(bench.check)
    bench.answer = cast(Any, "yes")
    half = bench.half()
    with pytest.raises(LookupError):
        run_sync(half, LookupError(), "")
    assert half.state == "undecided"
    assert "return True, False or None" in bench.alarms[0].text


@pytest.mark.parametrize("run", [run_sync, run_async])
def test_a_prepare_that_comes_after_its_timeout_is_rolled_back(run: Run) -> None:
    bench = Bench()
    goes_on = threading.Event()
    prepare = bench.sender.prepare

    def slow(id: str, prepared: Prepared, check_after_ms: int | None) -> Sent:
        assert goes_on.wait(WAIT_SECONDS)
        return prepare(id, prepared, check_after_ms)

    cast(Any, bench.sender).prepare = slow
    half = bench.half(timeout=20)

    def enter() -> None:
        with pytest.raises(TimeoutError):
            run(half, None, "")

    # asyncio.run waits for its threads at its end, so the other one lets them go.
    entering = threading.Thread(target=enter)
    entering.start()
    wait_until(lambda: half._is_abandoned)
    goes_on.set()
    entering.join(WAIT_SECONDS)
    wait_until(lambda: bench.sender.said == ["prepare", "rollback"])
    assert half.state == "new"


def test_a_plain_with_in_an_async_handler_does_not_stop_the_loop() -> None:
    bench = Bench()
    bench.app.half_checker("shop")(bench.check_async)
    half = bench.half()

    async def handler() -> None:
        with half:
            raise ValueError("the bank is closed")

    running = asyncio.run_coroutine_threadsafe(handler(), bench.app.context.loop.loop)
    with pytest.raises(ValueError, match="the bank is closed"):
        running.result(WAIT_SECONDS)
    assert half.state == "undecided"
    assert [alarm.name for alarm in bench.alarms] == ["half-check-failed"]
    bench.app.context.loop.stop()
