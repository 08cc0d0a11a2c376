"""Checkers: tell the half service whether a local transaction has committed.

A checker is a function of the application, or the store itself (`register_store`): then the local
transaction claims the id of the half message in the inbox, and so does the checker when it is
asked. If the checker gets the id, the local transaction has not committed and never can; if not,
it has. A transaction that is still open makes the checker wait for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.client.message import Message
from headrace.client.payloads import decoder
from headrace.errors import HandlerError
from headrace.handlers.signatures import Signature, read_signature
from headrace.ledger.half.commands import PREPARED_HEADER, check_topic, checked_group
from headrace.store.inbox import KEEP_MS

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.context import AppContext
    from headrace.store import Store
    from headrace.store.transaction import Transaction

Function = TypeVar("Function", bound=Callable[..., Any])

ANSWER_SECONDS = 10.0
# Consumers in the inbox that claim the ids of half messages: of local transactions and of checks.
JOINED = "headrace-half"
GIVEN_UP = "headrace-half-given-up"
# The inbox forgets ids; a person has to decide a half message that is older than this.
KNOWN_MS = KEEP_MS // 2

_log = logging.getLogger("headrace.half")


@dataclass(frozen=True, slots=True)
class Checker:
    """A function that knows whether the local transaction of a half message has committed.

    True: it has. False: it has not and never will. None: not known yet, ask again later.
    """

    group: str
    call: Callable[[Message], Any]
    is_async: bool

    def ask(self, context: AppContext, message: Message) -> bool | None:
        """Its answer, from a thread; an exception rings an alarm and counts as None."""
        try:
            answer = self.call(message)
            return _checked(context.loop.run(answer) if self.is_async else answer)
        except Exception as problem:
            self._failed(context, message, problem)
            return None

    async def ask_async(self, context: AppContext, message: Message) -> bool | None:
        """Its answer, from any event loop; an async checker runs on the loop of the handlers."""
        if not self.is_async:
            return await asyncio.to_thread(self.ask, context, message)
        try:
            asked = asyncio.run_coroutine_threadsafe(self.call(message), context.loop.loop)
            return _checked(await asyncio.wrap_future(asked))
        except Exception as problem:
            self._failed(context, message, problem)
            return None

    def _failed(self, context: AppContext, message: Message, problem: Exception) -> None:
        context.alarms.ring(
            "half-check-failed",
            f"the checker of {self.group} failed on half message {message.id}: {problem}",
            group=self.group,
            id=message.id,
        )


def register(app: App, group: str) -> Callable[[Function], Function]:
    """Make a function the checker of a producer group, run as a handler of the group's topic."""
    try:
        topic = check_topic(checked_group(group)).name
    except ValueError as problem:
        raise HandlerError(str(problem), '@app.half_checker("shop")') from None

    def add(function: Function) -> Function:
        signature = read_signature(function, batch=False)
        if {"tx", "out"} & set(signature.roles):
            raise HandlerError(
                f"the checker of {group} takes a Transaction or an Output; a checker only reads",
                "let it take the payload, the Message, or both",
            )
        if group in app.half_checkers:
            raise HandlerError(f"{group!r} has two checkers", "register one per group")
        checker = Checker(group, _caller(function, signature), signature.is_async)

        def answer(message: Message) -> None:
            _reply(app.context, message, checker.ask(app.context, message))

        async def answer_async(message: Message) -> None:
            decision = await checker.ask_async(app.context, message)
            await asyncio.to_thread(_reply, app.context, message, decision)

        app.handler(topic, name=f"half.{group}", group=topic, order="none", start="earliest")(
            answer_async if signature.is_async else answer
        )
        app.half_checkers[group] = checker
        return function

    return add


def _caller(function: Callable[..., Any], signature: Signature) -> Callable[[Message], Any]:
    decode = decoder(signature.kind)

    def call(message: Message) -> Any:
        arguments = (
            message if role == "message" else decode(message.value) for role in signature.roles
        )
        return function(*arguments)

    return call


def _checked(answer: object) -> bool | None:
    if answer is None or isinstance(answer, bool):
        return answer
    raise HandlerError(f"the checker returned {answer!r:.100}", "return True, False or None")


def _reply(context: AppContext, message: Message, decision: bool | None) -> None:
    """Send the decision to the service; if that fails, the service asks again."""
    if decision is None:
        return
    try:
        context.halves.decide(message.id, is_commit=decision).result(ANSWER_SECONDS)
    except Exception as problem:
        _log.warning("cannot write the decision on half message %s: %s", message.id, problem)


def register_store(app: App, group: str) -> None:
    """Make the store the checker of a producer group."""

    @register(app, group)
    def by_store(message: Message) -> bool | None:
        return has_committed(app.context, message)


class HalfGivenUp(HandlerError):
    """The checker was asked before the transaction joined, and answered that it never would."""


class _Committed(Exception):
    """The local transaction has committed, so the checker's own claim is rolled back."""


def join(store: Store, tx: Transaction, id: str) -> None:
    """Claim the id for the local transaction; HalfGivenUp if the checker has claimed it."""
    if not store.inbox.claim(tx, JOINED, [id], tx.now_ms):
        raise HalfGivenUp(
            f"half message {id} was given up before its transaction joined it",
            "it took longer than the first check; prepare it with a longer check_after=",
        )


def has_committed(context: AppContext, message: Message) -> bool | None:
    """Whether a transaction that joined the half message has committed; False is final."""
    prepared_ms = int(message.header(PREPARED_HEADER) or message.timestamp_ms)
    if context.clock.now_ms() - prepared_ms > KNOWN_MS:
        return None
    store = context.need_store("the store's checker")
    try:
        with store.begin() as tx:
            if not store.inbox.claim(tx, GIVEN_UP, [message.id], tx.now_ms):
                return False
            if not store.inbox.claim(tx, JOINED, [message.id], tx.now_ms):
                raise _Committed
    except _Committed:
        return True
    return False
