"""Waiting requests complete on their condition or at their deadline, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.broker.clock import Timers, WakeUp
from headrace.broker.purgatory import Pending, Purgatory, Waiting
from headrace.protocol.api.heartbeat import HeartbeatResponse


class ManualClock:
    """A clock moved by hand; alarms ring inside `advance`."""

    def __init__(self) -> None:
        self.time_ms = 1_000
        self.alarms: list[tuple[int, Callable[[], None], list[bool]]] = []

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms

    def wake_after(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, wake: Callable[[], None]
    ) -> WakeUp:
        cancelled = [False]
        self.alarms.append((self.time_ms + delay_ms, wake, cancelled))

        class Handle:
            def cancel(self) -> None:
                cancelled[0] = True

        return Handle()

    def advance(self, by_ms: int) -> None:
        self.time_ms += by_ms
        due = [alarm for alarm in self.alarms if alarm[0] <= self.time_ms]
        self.alarms = [alarm for alarm in self.alarms if alarm[0] > self.time_ms]
        for _, wake, cancelled in due:
            if not cancelled[0]:
                wake()


class Flagged(Waiting):
    def __init__(self) -> None:
        super().__init__()
        self.flag = False
        self.log: list[str] = []

    def try_complete(self) -> bool:
        if self.flag:
            self.log.append("completed")
        return self.flag

    def expire(self) -> None:
        self.log.append("expired")

    def fail(self) -> None:
        self.log.append("failed")


def make() -> tuple[ManualClock, Purgatory]:
    clock = ManualClock()
    loop = asyncio.new_event_loop()
    loop.close()
    return clock, Purgatory(Timers(clock, loop))


def test_completes_when_a_key_is_checked_and_the_condition_holds() -> None:
    clock, purgatory = make()
    waiting = Flagged()
    purgatory.park(waiting, ("a", "b"), 100)
    purgatory.check("a")
    assert waiting.log == []
    waiting.flag = True
    purgatory.check("b")
    purgatory.check("a")
    clock.advance(1_000)
    assert waiting.log == ["completed"]
    assert purgatory.size == 0
    assert not purgatory.has_waiting("a")
    assert not purgatory.has_waiting("b")


def test_expires_at_its_deadline_and_never_before() -> None:
    clock, purgatory = make()
    waiting = Flagged()
    purgatory.park(waiting, ("a",), 100)
    clock.advance(99)
    assert waiting.log == []
    clock.advance(2)
    assert waiting.log == ["expired"]
    waiting.flag = True
    purgatory.check("a")
    assert waiting.log == ["expired"]
    assert purgatory.size == 0


def test_a_forgotten_request_is_never_answered() -> None:
    clock, purgatory = make()
    waiting = Flagged()
    purgatory.park(waiting, ("a",), 100)
    purgatory.forget(waiting)
    waiting.flag = True
    purgatory.check("a")
    clock.advance(1_000)
    assert waiting.log == []


def test_a_shorter_deadline_moves_the_alarm_forward() -> None:
    clock, purgatory = make()
    late, soon = Flagged(), Flagged()
    purgatory.park(late, ("a",), 10_000)
    purgatory.park(soon, ("a",), 10)
    clock.advance(11)
    assert soon.log == ["expired"]
    assert late.log == []
    clock.advance(10_000)
    assert late.log == ["expired"]


class Failing(Flagged):
    """A request whose check fails."""

    def try_complete(self) -> bool:
        raise RuntimeError("a bug")

    def expire(self) -> None:
        raise RuntimeError("a bug")


def test_one_request_that_fails_does_not_keep_others_waiting() -> None:
    _, purgatory = make()
    failing, waiting = Failing(), Flagged()
    waiting.flag = True
    purgatory.park(failing, ("a",), 100)
    purgatory.park(waiting, ("a",), 100)
    purgatory.check("a")
    assert waiting.log == ["completed"]
    assert purgatory.size == 0


def test_a_request_whose_check_raises_is_told_of_the_failure() -> None:
    clock, purgatory = make()
    failing = Failing()
    purgatory.park(failing, ("a",), 100)
    purgatory.check("a")
    clock.advance(1_000)
    assert failing.log == ["failed"]


def test_a_request_that_raises_at_its_deadline_is_told_of_the_failure() -> None:
    clock, purgatory = make()
    failing = Failing()
    purgatory.park(failing, ("a",), 100)
    clock.advance(1_000)
    assert failing.log == ["failed"]
    assert purgatory.size == 0


def test_a_pending_response_is_resolved_once() -> None:
    pending = Pending()
    seen: list[object] = []
    pending.on_resolved(lambda resolved: seen.append(resolved.response))
    first, second = HeartbeatResponse(), HeartbeatResponse()
    pending.resolve(first)
    pending.resolve(second)
    assert len(seen) == 1
    assert seen[0] is first
    assert pending.response is first


def test_a_pending_response_can_be_awaited_before_and_after_it_is_resolved() -> None:
    async def scenario() -> None:
        pending = Pending()
        task = asyncio.create_task(pending.wait())
        await asyncio.sleep(0)
        assert not task.done()
        pending.resolve(HeartbeatResponse())
        assert await task is pending.response
        assert await pending.wait() is pending.response

    asyncio.run(scenario())
