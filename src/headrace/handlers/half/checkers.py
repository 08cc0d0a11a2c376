"""Checkers: what a producer group answers when it is asked what became of a local transaction."""

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
from headrace.ledger.half.headers import check_topic, checked_group

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.context import AppContext

Function = TypeVar("Function", bound=Callable[..., Any])

ANSWER_SECONDS = 10.0

_log = logging.getLogger("headrace.half")


@dataclass(frozen=True, slots=True)
class Checker:
    """A function that knows whether the local transaction of a half message has happened.

    True: it has. False: it has not and never will. None: not known yet, ask again later.
    """

    group: str
    call: Callable[[Message], Any]
    is_async: bool

    def ask(self, context: AppContext, message: Message) -> bool | None:
        """Its answer, from a thread; what it raises is an alarm and counts as not known."""
        try:
            answer = self.call(message)
            return _checked(context.loop.run(answer) if self.is_async else answer)
        except Exception as problem:
            self._failed(context, message, problem)
            return None

    async def ask_async(self, context: AppContext, message: Message) -> bool | None:
        """Its answer, from any event loop; an async one runs on the loop of the app's handlers."""
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
            f"the checker of {self.group} failed on {message.id}: {problem}",
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
                f"the checker of {group} takes a Transaction or an Output",
                "it only looks: give it the payload, the Message, or both",
            )
        if group in app.half_checkers:
            raise HandlerError(f"two checkers are there for {group!r}", "a group has one")
        checker = Checker(group, _caller(function, signature), signature.is_async)

        def answer(message: Message) -> None:
            _tell(app.context, message, checker.ask(app.context, message))

        async def answer_async(message: Message) -> None:
            said = await checker.ask_async(app.context, message)
            await asyncio.to_thread(_tell, app.context, message, said)

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
    raise HandlerError(f"it returned {answer!r:.100}", "return True, False or None")


def _tell(context: AppContext, message: Message, said: bool | None) -> None:
    """Answer the service; what gets lost is asked for again."""
    if said is None:
        return
    try:
        context.halves.decide(message.id, is_commit=said).result(ANSWER_SECONDS)
    except Exception as problem:
        _log.warning("the answer for %s is not written: %s", message.id, problem)
