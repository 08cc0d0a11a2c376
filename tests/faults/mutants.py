"""Seeded mutants of the layer: each breaks one promise, and the checker must notice it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.client.message import Message
from headrace.handlers.dead_letters import DeadLetters
from headrace.handlers.execution import Execution
from headrace.handlers.failures import Failures
from headrace.handlers.policies import DeadLetter
from headrace.handlers.progress import Progress
from headrace.handlers.retries import RetryJob
from headrace.outbox.relay import Relay
from headrace.store.inbox import Inbox
from headrace.store.outbox import OutboxMessage


def no_claim() -> None:
    """The inbox takes every message for a new one."""

    def claim(
        _inbox: Inbox, _tx: Any, _consumer: str, ids: Sequence[str], _now_ms: int
    ) -> set[str]:
        return set(ids)

    _replace(Inbox, "claim", claim)


def claim_apart() -> None:
    """The inbox row is committed before the handler is run, not with its effect."""

    def run(execution: Execution, messages: Any, values: Any, also: Any, _positions: Any) -> None:
        store, inbox = execution._store, execution._inbox
        assert store is not None
        assert inbox is not None
        with store.begin() as tx:
            new = inbox.claim(tx, execution.spec.name, [m.id for m in messages], tx.now_ms)
        kept = [(m, v) for m, v in zip(messages, values, strict=True) if m.id in new]
        with store.begin() as tx:
            execution.call_all([m for m, _ in kept], [v for _, v in kept], tx)
            if also is not None:
                also(tx)

    _replace(Execution, "_run_in_transaction", run)


def commit_ahead() -> None:
    """Offsets are committed as far as was received, not as far as is done."""
    _replace(Progress, "safe_offset", lambda progress: progress.next_offset)


def drop_parked() -> None:
    """A message that should be parked is forgotten."""
    _replace(Failures, "_park", lambda *_: None)


def forget_keys() -> None:
    """A parked message does not hold up its key."""
    _replace(Failures, "is_waiting", lambda *_: False)


def dead_at_once() -> None:
    """A message is given up when it fails for the first time."""
    _replace(Failures, "step", lambda *_: DeadLetter())


def letters_unsent() -> None:
    """Dead letters are marked as sent and are not."""
    _replace(DeadLetters, "_send", lambda *_: None)


def letters_unindexed() -> None:
    """Dead letters are sent and nobody keeps an index of them."""

    def give_up(
        letters: DeadLetters,
        message: Message,
        failure: Any,
        attempts: int,
        parked: Any = None,
    ) -> None:
        letters._send(message, failure, attempts)
        if parked is not None:
            assert letters._store is not None
            with letters._store.begin() as tx:
                letters._store.retries.remove(tx, parked)

    _replace(DeadLetters, "give_up", give_up)


def remove_first() -> None:
    """A message leaves the retry table before it is tried, not with its effect."""

    def attempt(job: RetryJob, parked: Any) -> None:
        with job._store.begin() as tx:
            job._store.retries.remove(tx, parked)
        job._execute(parked.message, lambda _tx: None)

    _replace(RetryJob, "_try", attempt)


def marked_unsent() -> None:
    """The first message of each of the relay's turns is marked as sent and is not."""
    original = Relay._send

    def send(relay: Relay, messages: Sequence[OutboxMessage]) -> None:
        original(relay, messages[1:])
        relay._unmarked.sent += [message.seq for message in messages[:1]]

    _replace(Relay, "_send", send)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant
    for mutant in (
        no_claim,
        claim_apart,
        commit_ahead,
        drop_parked,
        forget_keys,
        dead_at_once,
        letters_unsent,
        letters_unindexed,
        remove_first,
        marked_unsent,
    )
}


def install(name: str) -> None:
    """Break the layer of this process in one way."""
    MUTANTS[name]()


def _replace(owner: type, name: str, function: Callable[..., Any]) -> None:
    getattr(owner, name)
    setattr(owner, name, function)
