"""One call of a handler: its arguments, its transaction, its inbox row and what goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest
from tests.handlers.stage import Stage

from headrace.client.message import CONFIRM_HEADER, Message
from headrace.errors import HandlerError, UndecodablePayload
from headrace.handlers.lanes import Track
from headrace.store import Store, Transaction, open_store

NEVER_NS = 1 << 62


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/shop.db")
    store.create()
    with store.begin() as tx:
        tx.execute("CREATE TABLE effects (number INTEGER)")
    yield store
    store.close()


def effects(store: Store) -> list[int]:
    with store.read() as tx:
        return list(tx.execute("SELECT number FROM effects ORDER BY number").scalars())


def write(number: int, tx: Transaction) -> None:
    tx.execute("INSERT INTO effects VALUES (:number)", {"number": number})
    if number < 0:
        raise ValueError("as planned")


def message(number: int, id: str = "", asks: bool = False) -> Message:
    headers = [(CONFIRM_HEADER, b"[]")] if asks else []
    return Message("t", 0, abs(number), b"k", b"%d" % number, headers, id=id)


def test_a_repeated_id_has_one_effect_but_what_goes_with_it_is_done_again(store: Store) -> None:
    execution = Stage(write, store).execution
    beside: list[int] = []
    for _ in range(2):
        execution.execute_one(message(1, id="a"), lambda tx: beside.append(len(effects(store))))
    assert effects(store) == [1]
    assert beside == [0, 1], "each before its commit"


def test_an_error_undoes_the_effects_and_the_inbox_rows_of_the_whole_group(store: Store) -> None:
    execution = Stage(write, store).execution
    group = [message(1, id="a"), message(-2, id="b")]
    with pytest.raises(ValueError, match="as planned"):
        execution.run_messages(group)
    assert effects(store) == []
    assert store.inbox.find("a") == store.inbox.find("b") == []
    execution.run_messages(group[:1])
    assert effects(store) == [1]


def test_of_two_messages_with_one_id_the_first_runs(store: Store) -> None:
    Stage(write, store).execution.run_messages([message(1, id="a"), message(2, id="a")])
    assert effects(store) == [1]


def test_what_goes_with_a_handler_without_a_transaction_comes_after_it(store: Store) -> None:
    order: list[str] = []

    def plain(number: int) -> None:
        order.append("handler")

    Stage(plain, store).execution.execute_one(message(1), lambda tx: order.append("also"))
    assert order == ["handler", "also"]


def test_nothing_goes_with_a_handler_that_failed(store: Store) -> None:
    def fails(number: int) -> None:
        raise ValueError("as planned")

    also: list[int] = []
    with pytest.raises(ValueError, match="as planned"):
        Stage(fails, store).execution.execute_one(message(1), lambda tx: also.append(1))
    assert also == []


def test_parameters_are_filled_by_their_roles_in_any_order(store: Store) -> None:
    got: list[Any] = []

    def odd(tx: Transaction, found: Message, number: int) -> None:
        got.append((tx.kind, found.offset, number))

    Stage(odd, store).execution.execute_one(message(7))
    assert got == [("sqlite", 7, 7)]


def test_a_handler_that_takes_no_payload_is_not_stopped_by_one_it_could_not_read() -> None:
    seen: list[int] = []

    def by_offset(found: Message) -> None:
        seen.append(found.offset)

    Stage(by_offset, None).execution.execute_one(Message("t", 0, 3, None, b"\xff"))
    assert seen == [3]


def test_only_messages_that_ask_for_it_are_confirmed_and_only_once_their_effect_is_there(
    store: Store,
) -> None:
    stage = Stage(write, store)
    confirmed: list[tuple[str, list[int]]] = []

    def confirm(group: str, messages: Sequence[Message]) -> None:
        assert effects(store) == [1, 2]
        confirmed.append((group, [message.offset for message in messages]))

    stage.context.confirm = confirm
    stage.execution.run_messages([message(1), message(2, asks=True)])
    assert confirmed == [("g", [2])]
    with pytest.raises(ValueError, match="as planned"):
        stage.execution.run_messages([message(-3, asks=True)])
    assert len(confirmed) == 1


def test_plain_payloads_run_up_to_the_error_the_deadline_or_the_end_of_the_partition() -> None:
    ran: list[int] = []

    def plain(number: int) -> None:
        ran.append(number)
        if number == 2:
            raise ValueError("as planned")

    stage = Stage(plain, None)
    track = Track("t", 0)
    chunk = stage.take((track, range(5)))
    done, error = stage.execution.run_plain(chunk, 0, NEVER_NS)
    assert (done, type(error)) == (2, ValueError)
    assert stage.execution.run_plain(chunk, 3, monotonic_ns()) == (4, None), "one, then it is time"
    stage.scheduler.close([track], 0)
    assert stage.execution.run_plain(chunk, 4, NEVER_NS) == (4, None)
    assert ran == [0, 1, 2, 3]


def test_payloads_are_decoded_up_to_the_first_that_cannot_be() -> None:
    def batch(numbers: list[str]) -> None: ...

    stage = Stage(batch, None, batch=10)
    chunk = stage.take((Track("t", 0), range(3)))
    stage.execution._decode = lambda value: int(value or b"") if value != b"1" else _refuse()
    values, error = stage.execution.payloads(chunk, 0)
    assert values == [0]
    assert isinstance(error, UndecodablePayload)


def _refuse() -> None:
    raise UndecodablePayload("it is not a number")


def test_a_handler_with_a_transaction_needs_a_store() -> None:
    with pytest.raises(HandlerError, match=r"handler h needs a store .hint: App\("):
        Stage(write, None)
