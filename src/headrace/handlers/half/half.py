"""A half message in the sender's code: `with app.half("orders", order):` around its transaction."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from headrace.client.message import ID_HEADER, Message
from headrace.errors import HandlerError
from headrace.ledger.half.headers import CHECK_PREFIX

if TYPE_CHECKING:
    from headrace.client.delivery import RecordMetadata, Sent
    from headrace.handlers.context import AppContext
    from headrace.handlers.half.checkers import Checker
    from headrace.ledger.half.bodies import Prepared
    from headrace.store.transaction import Transaction

HalfState = Literal["new", "prepared", "committed", "rolled back", "undecided"]


class Half:
    """A message that is delivered if its block ends well; for `with` and for `async with`.

    It is prepared when the block begins: durable, and visible to nobody. At the end it is
    committed. When the block raises, the producer group's checker is asked at once whether the
    local transaction has happened nevertheless (a COMMIT whose answer was lost); without a checker
    in this app it is rolled back. What cannot be decided now, because the brokers are away or the
    checker does not know, is `undecided`, and the half service asks the group again later; so it
    is when this process dies in the block. A cancelled block is one that raises.
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
        """Commit it at the end of the block, even if that raises."""
        self._wish = True

    def rollback(self) -> None:
        """Roll it back at the end of the block, even if that ends well."""
        self._wish = False

    def join(self, tx: Transaction) -> None:
        """Tie it to a transaction of the app's store, for `app.half_store_checker`.

        HalfGivenUp if the checker came first: then this transaction must not commit.
        """
        from headrace.handlers.half.joining import join

        join(self._context.need_store("half.join"), tx, self.id)

    def __enter__(self) -> Self:
        try:
            _write(self._prepare, self._timeout_s)
        except BaseException:
            self._abandon()
            raise
        self.state = "prepared"
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
        self.state = "undecided"
        if decision is not None:
            try:
                _write(partial(self._decide, decision), self._timeout_s)
            except Exception as problem:
                self._alarm(problem)
            else:
                self.state = "committed" if decision else "rolled back"

    async def __aenter__(self) -> Self:
        try:
            await asyncio.wait_for(_written(self._prepare), self._timeout_s)
        except BaseException:
            self._abandon()
            raise
        self.state = "prepared"
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
        self.state = "undecided"
        if decision is not None:
            try:
                decide = partial(self._decide, decision)
                await asyncio.wait_for(_written(decide), self._timeout_s)
            except Exception as problem:
                self._alarm(problem)
            else:
                self.state = "committed" if decision else "rolled back"

    def _prepare(self) -> Sent:
        if self.state != "new":
            raise HandlerError(f"{self.id} is {self.state}", "every block has a half of its own")
        sent = self._context.halves.prepare(self.id, self._prepared, self._check_after_ms)
        self._is_sent = True
        if self._is_abandoned:
            self._decide(False)
        return sent

    def _decision(self, error: BaseException | None) -> bool | None:
        """What can be said without asking anybody."""
        if self._wish is not None:
            return self._wish
        if error is None:
            return True
        return False if self._checker is None else None

    def _decide(self, decision: bool) -> Sent:
        return self._context.halves.decide(self.id, is_commit=decision)

    def _abandon(self) -> None:
        """The block never began; if the prepare is written after all, nobody need be asked."""
        self._is_abandoned = True
        if self._is_sent:
            with contextlib.suppress(Exception):
                self._decide(False)

    def _message(self) -> Message:
        """As the service would ask for it."""
        headers = (*self._prepared.headers, (ID_HEADER, self.id.encode()))
        topic = CHECK_PREFIX + self._prepared.group
        now_ms = self._context.clock.now_ms()
        key, value = self._prepared.key, self._prepared.value
        return Message(topic, -1, -1, key, value, headers, now_ms, self.id)

    def _alarm(self, problem: Exception) -> None:
        # The local transaction is over, so raising would only make its success look like a failure.
        self._context.alarms.ring(
            "half-undecided",
            f"the decision on {self.id} is not written ({problem}); its checker will be asked",
            id=self.id,
            group=self._prepared.group,
        )


def _write(send: Callable[[], Sent], timeout_s: float) -> None:
    """Send and wait until it is written; TimeoutError when the time is over, wherever it went."""
    give_up_at = time.monotonic() + timeout_s
    sending: Future[Sent] = Future()

    def run() -> None:
        try:
            sending.set_result(send())
        except BaseException as problem:
            sending.set_exception(problem)

    # Sending waits for metadata at times, and that knows no timeout.
    threading.Thread(target=run, name="headrace-half", daemon=True).start()
    sending.result(timeout_s).result(max(0.0, give_up_at - time.monotonic()))


async def _written(send: Callable[[], Sent]) -> RecordMetadata:
    # Sending waits for metadata at times, so it is not for the event loop.
    return await (await asyncio.to_thread(send))
