"""The token service sends everything to a store that is sometimes down, and blocks no caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest
from tests.dispatch.harness import QUICK
from tests.waiting import wait_until

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.token_service import TokenService
from headrace.dispatch.tokens.store import (
    Answer,
    Fence,
    Put,
    Renew,
    Revoke,
    StoreStatus,
    Token,
    TokenChange,
)


class FakeStore:
    """A store whose answers the test gives."""

    def __init__(self) -> None:
        self.is_away = False
        self.bug: Exception | None = None
        self.calls: list[tuple[list[TokenChange], int | None]] = []
        self.grants: list[Token] = []
        self.offers: list[Token] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        assert self.may_answer.wait(60)
        if self.bug is not None:
            raise self.bug
        if self.is_away:
            raise TokensUnavailable("away", "wait")
        self.calls.append((list(changes), want))
        granted, self.grants = self.grants, []
        return Answer(granted, ["ok"] * len(changes), dict.fromkeys(query), "born", 0)

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        threading.Event().wait(0.01)
        offered, self.offers = self.offers, []
        return offered

    def status(self) -> StoreStatus:
        raise NotImplementedError

    def close(self) -> None: ...


class Rig:
    """An token_service with its store and what it reported."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.wanted = 0
        self.answers: list[Answer] = []
        self.granted: list[Token] = []
        self.token_service = TokenService(
            self.store,
            "node",
            1,
            QUICK,
            want=lambda: self.wanted,
            on_answer=lambda _changes, answer: self.answers.append(answer),
            on_granted=self.granted.extend,
        )
        self.token_service.start()

    def carried(self) -> list[TokenChange]:
        return [change for changes, _ in self.store.calls for change in changes]


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.store.may_answer.set()
    made.token_service.stop(10)


def put(partition: int, offset: int) -> Put:
    return Put(partition, Fence(1, offset))


def test_changes_that_come_together_go_together(rig: Rig) -> None:
    rig.store.may_answer.clear()
    rig.token_service.add([put(0, 1)])
    # The first call is on its way; these wait for it.
    for number in range(1, 10):
        rig.token_service.add([put(number, 1)])
    rig.store.may_answer.set()
    wait_until(lambda: len(rig.carried()) == 10)
    assert len(rig.store.calls) <= 3


def test_adding_never_waits_and_an_outage_costs_no_memory(rig: Rig) -> None:
    rig.store.is_away = True
    rig.token_service.add([put(0, 1)])
    wait_until(lambda: rig.token_service.is_away)
    for offset in range(1000):
        rig.token_service.add([Renew(0, Fence(1, offset)), put(1, offset)])
    rig.token_service.add([Revoke(1, Fence(1, 999)), put(1, 1000)])
    assert len(rig.token_service._changes) <= 4
    rig.store.is_away = False
    wait_until(lambda: put(1, 1000) in rig.carried())
    carried = [change for change in rig.carried() if change.partition == 1]
    # What came last is carried last.
    assert carried[-2:] == [Revoke(1, Fence(1, 999)), put(1, 1000)]
    assert rig.token_service.failures > 0
    assert not rig.token_service.is_away


def test_of_two_changes_the_newer_fence_is_carried_in_whatever_order_they_come(rig: Rig) -> None:
    rig.store.is_away = True
    rig.token_service.add([put(0, 12), put(1, 12), put(2, 12)])
    wait_until(lambda: rig.token_service.is_away)
    rig.token_service.add([put(0, 11), put(1, 13), Put(2, Fence(1, 3), True)])
    rig.store.is_away = False
    wait_until(lambda: len(rig.carried()) == 3)
    # Only a forced one goes back.
    assert {change.partition: change.fence.next_offset for change in rig.carried()} == {
        0: 12,
        1: 13,
        2: 3,
    }


def test_it_asks_for_what_is_wanted_and_not_again_while_the_store_knows(rig: Rig) -> None:
    rig.wanted = 3
    rig.store.grants = [Token(0, Fence(1, 0))]
    rig.token_service.ask()
    wait_until(lambda: rig.answers and rig.answers[0].granted)
    rig.wanted = 2
    rig.store.offers = [Token(1, Fence(1, 0)), Token(2, Fence(1, 0))]
    wait_until(lambda: len(rig.granted) == 2)
    rig.wanted = 0
    asked = [want for _, want in rig.store.calls if want is not None]
    assert asked[0] == 3
    assert set(asked) <= {3, 2, 0}


def test_it_asks_again_now_and_then_since_a_store_may_forget(rig: Rig) -> None:
    rig.wanted = 1
    rig.token_service.ask()
    wait_until(lambda: [want for _, want in rig.store.calls].count(1) >= 3)


def test_what_comes_up_soon_after_a_call_shares_the_next(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.token_service.add([put(0, 1)])
    wait_until(lambda: rig.store.calls)
    monkeypatch.setattr("headrace.dispatch.token_service.GAP_SECONDS", 3_600)
    rig.token_service.add([put(1, 1)])
    wait_until(lambda: len(rig.store.calls) == 2)
    for number in range(2, 9):
        rig.token_service.add([put(number, 1)])
    # A stop does not wait for it.
    rig.token_service.stop(60)
    assert (len(rig.store.calls), len(rig.carried())) == (3, 9)


def test_an_error_that_nobody_knows_ends_no_thread(rig: Rig) -> None:
    rig.store.bug = ZeroDivisionError("a bug")
    rig.token_service.add([put(0, 1)])
    wait_until(lambda: rig.token_service.failures)
    rig.store.bug = None
    wait_until(lambda: rig.carried() == [put(0, 1)])


def test_at_its_end_it_stops_asking_and_carries_what_is_left(rig: Rig) -> None:
    rig.wanted = 1
    rig.token_service.ask()
    wait_until(lambda: rig.store.calls)
    rig.token_service.add([Revoke(0, Fence(1, 1))])
    rig.token_service.stop(10)
    assert Revoke(0, Fence(1, 1)) in rig.carried()
    assert rig.store.calls[-1][1] == 0
