"""A half message in the sender's code: `with app.half("orders", order):` around a transaction."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from headrace.client.delayed import After, At, as_pairs, read_due_ms, when_header
from headrace.client.message import ID_HEADER, Message
from headrace.client.payloads import encode
from headrace.errors import HandlerError
from headrace.ledger.half.commands import (
    CHECK_PREFIX,
    COMMAND_HEADERS,
    Prepared,
    checked_after,
    checked_group,
    checked_target,
)
from headrace.ledger.records import read_id
from headrace.store.columns import new_id
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.client.delivery import RecordMetadata, Sent
    from headrace.handlers.app import App
    from headrace.handlers.context import AppContext
    from headrace.handlers.half.checkers import Checker
    from headrace.store.transaction import Transaction

TIMEOUT = "10s"

HalfState = Literal["new", "prepared", "committed", "rolled back", "undecided"]


class Half:
    """A message that is delivered if its block ends without an exception; also for `async with`.

    It is prepared when the block begins: durable, but visible to nobody. At the end it is
    committed. If the block raises, the producer group's checker is asked at once whether the local
    transaction has committed nevertheless (its answer may have been lost); without a checker in
    this app the message is rolled back. If no decision is possible now, because the brokers are
    away or the checker does not know, it is `undecided` and the half service asks the group later;
    the same happens if this process dies in the block. A cancelled block counts as one that raises.
    """

    def __init__(
        self,
        context: AppContext,
        id: str,
        prepared: Prepared,
        *,
        checker: Checker | None,
        check_after_ms: int | None,
        timeout_s: float,
    ) -> None:
        self.id = id
        self.state: HalfState = "new"
        self._context = context
        self._prepared = prepared
        self._checker = checker
        self._check_after_ms = check_after_ms
        self._timeout_s = timeout_s
        self._wish: bool | None = None
        self._is_sent = False
        self._is_abandoned = False

    def commit(self) -> None:
        """Commit at the end of the block, even if the block raises."""
        self._wish = True

    def rollback(self) -> None:
        """Roll back at the end of the block, even if the block raises nothing."""
        self._wish = False

    def join(self, tx: Transaction) -> None:
        """Tie the message to a transaction of the app's store, for `app.half_store_checker`.

        HalfGivenUp if the checker was asked first: then this transaction must not commit.
        """
        from headrace.handlers.half.checkers import join

        join(self._context.need_store("half.join"), tx, self.id)

    def __enter__(self) -> Self:
        with self._preparing():
            _write(self._prepare, self._timeout_s)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        decision = self._decision(error)
        if decision is None and self._checker is not None:
            decision = self._checker.ask(self._context, self._message())
        with self._deciding(decision):
            if decision is not None:
                _write(partial(self._decide, decision), self._timeout_s)

    async def __aenter__(self) -> Self:
        with self._preparing():
            await asyncio.wait_for(_written(self._prepare), self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        decision = self._decision(error)
        if decision is None and self._checker is not None:
            decision = await self._checker.ask_async(self._context, self._message())
        with self._deciding(decision):
            if decision is not None:
                decide = partial(self._decide, decision)
                await asyncio.wait_for(_written(decide), self._timeout_s)

    @contextmanager
    def _preparing(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._abandon()
            raise
        self.state = "prepared"

    @contextmanager
    def _deciding(self, decision: bool | None) -> Iterator[None]:
        self.state = "undecided"
        try:
            yield
        except Exception as problem:
            self._alarm(problem)
        else:
            if decision is not None:
                self.state = "committed" if decision else "rolled back"

    def _prepare(self) -> Sent:
        if self.state != "new":
            raise HandlerError(
                f"half message {self.id} is {self.state} already", "call app.half() for every block"
            )
        sent = self._context.halves.prepare(self.id, self._prepared, self._check_after_ms)
        self._is_sent = True
        if self._is_abandoned:
            self._decide(False)
        return sent

    def _decision(self, error: BaseException | None) -> bool | None:
        """The decision, if it needs no checker."""
        if self._wish is not None:
            return self._wish
        if error is None:
            return True
        return False if self._checker is None else None

    def _decide(self, decision: bool) -> Sent:
        return self._context.halves.decide(self.id, is_commit=decision)

    def _abandon(self) -> None:
        """Roll back a prepare that may be written although the block never began."""
        self._is_abandoned = True
        if self._is_sent:
            with suppress(Exception):
                self._decide(False)

    def _message(self) -> Message:
        """The message that the service would send to the checker."""
        headers = (*self._prepared.headers, (ID_HEADER, self.id.encode()))
        topic = CHECK_PREFIX + self._prepared.group
        now_ms = self._context.clock.now_ms()
        key, value = self._prepared.key, self._prepared.value
        return Message(topic, -1, -1, key, value, headers, now_ms, self.id)

    def _alarm(self, problem: Exception) -> None:
        # The local transaction is over: an exception would make its success look like a failure.
        self._context.alarms.ring(
            "half-undecided",
            f"cannot write the decision on half message {self.id} ({problem}); "
            "the half service will ask its checker",
            id=self.id,
            group=self._prepared.group,
        )


def open_half(
    app: App,
    topic: str,
    value: object,
    *,
    key: bytes | str | None = None,
    headers: Mapping[str, bytes | str] | None = None,
    id: str | None = None,
    group: str | None = None,
    after: After | None = None,
    at: At | None = None,
    check_after: str | int | None = None,
    timeout: str | int = TIMEOUT,
) -> Half:
    """A half message for a topic; HandlerError if it could never be delivered or checked."""
    context = app.context
    given = tuple((name, encode(text)) for name, text in as_pairs(headers))
    try:
        for name, _ in given:
            if name in COMMAND_HEADERS:
                raise ValueError(f"the header {name} is set by the arguments")
        own_id = new_id(context.clock.now_ms()) if id is None else read_id(id.encode())
        prepared = Prepared(
            checked_target(topic.encode()),
            checked_group(group or _only_group(app)),
            encode(key),
            encode(value),
            given,
            _checked_delay(after, at, context.clock.now_ms()),
        )
        if context.large is not None and len(prepared.value or b"") > context.large.above_bytes:
            raise ValueError(
                f"its value has {len(prepared.value or b'')} bytes, too large for one record; "
                "store it and send its address"
            )
        check_after_ms = None if check_after is None else checked_after(check_after)
        timeout_s = duration_ms(timeout) / 1000
    except ValueError as problem:
        raise HandlerError(f"a half message for {topic}: {problem}") from None
    checker = app.half_checkers.get(prepared.group)
    return Half(
        context,
        own_id,
        prepared,
        checker=checker,
        check_after_ms=check_after_ms,
        timeout_s=timeout_s,
    )


def _only_group(app: App) -> str:
    groups = list(app.half_checkers)
    if len(groups) != 1:
        raise HandlerError(
            f"group= is missing, and {len(groups)} producer groups have a checker in this app",
            'name one: app.half("orders", order, group="shop")',
        )
    return groups[0]


def _checked_delay(after: After | None, at: At | None, now_ms: int) -> tuple[str, str] | None:
    delay = when_header(after, at)
    if delay is not None:
        read_due_ms({delay[0]: delay[1].encode()}, now_ms)
    return delay


def _write(send: Callable[[], Sent], timeout_s: float) -> None:
    """Send and wait until it is written; TimeoutError if that takes too long."""
    give_up_at = time.monotonic() + timeout_s
    sending: Future[Sent] = Future()

    def run() -> None:
        try:
            sending.set_result(send())
        except BaseException as problem:
            sending.set_exception(problem)

    # Sending may wait for metadata, which has no timeout, so it runs in a thread.
    threading.Thread(target=run, name="headrace-half", daemon=True).start()
    sending.result(timeout_s).result(max(0.0, give_up_at - time.monotonic()))


async def _written(send: Callable[[], Sent]) -> RecordMetadata:
    # Sending may wait for metadata, so it must not run on the event loop.
    return await (await asyncio.to_thread(send))
