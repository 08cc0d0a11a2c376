"""Talks to the token store in the background, so that no other thread waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.store import Answer, Put, Renew, Token, TokenChange, TokenStore

# One wait for an offer; a store that lost its state is noticed after it at the latest.
WAIT_SECONDS = 1.0
# The first and the longest pause before a store that does not answer is called again.
RETRY_SECONDS_MIN = 0.05
RETRY_SECONDS_MAX = 1.0
# Calls are at least this far apart: the first is made at once, later changes share the next.
GAP_SECONDS = 0.003

_log = logging.getLogger("headrace.dispatch")


class TokenService:
    """Two threads: one sends changes and asks, the other waits for tokens that are offered.

    While the store does not answer, the last change of each kind and partition is kept, and sent
    when it is back.
    """

    def __init__(
        self,
        store: TokenStore,
        node: str,
        weight: int,
        limits: DispatchLimits,
        *,
        want: Callable[[], int],
        on_answer: Callable[[Sequence[TokenChange], Answer], None],
        on_granted: Callable[[list[Token]], None],
    ) -> None:
        self.calls = self.failures = 0
        self.is_away = False
        self._store = store
        self._node = node
        self._weight = weight
        self._limits = limits
        self._want = want
        self._on_answer = on_answer
        self._on_granted = on_granted
        self._wanted = threading.Condition()
        self._changes: dict[tuple[type, int], TokenChange] = {}
        self._queries: set[int] = set()
        # How many tokens this node waits for, as far as the store knows.
        self._asked = 0
        self._ask_at_s = 0.0
        self._is_stopping = False
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=target, name=f"headrace-tokens-{name}", daemon=True)
            for name, target in (("exchange", self._exchange), ("wait", self._wait))
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def add(self, changes: Iterable[TokenChange], queries: Iterable[int] = ()) -> None:
        """Send changes and queries with the next exchange, which begins at once."""
        with self._wanted:
            for change in changes:
                key = (type(change), change.partition)
                if is_newer(change, self._changes.get(key)):
                    # A newer change goes behind those that came in between.
                    self._changes.pop(key, None)
                    self._changes[key] = change
            self._queries.update(queries)
            self._wanted.notify_all()

    def ask(self) -> None:
        """Check again how many tokens the node wants."""
        with self._wanted:
            self._wanted.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Stop asking, send what is left, and end; owners heal what cannot be sent."""
        with self._wanted:
            self._is_stopping = True
            self._stopping.set()
            self._wanted.notify_all()
        for thread in self._threads:
            thread.join(timeout_s)

    def _exchange(self) -> None:
        pause_s = call_at_s = 0.0
        while True:
            if pause_s:
                self._stopping.wait(pause_s)
            if not self._has_to_call():
                return
            if (gap_s := call_at_s - time.monotonic()) > 0:
                self._stopping.wait(gap_s)
            call_at_s = time.monotonic() + GAP_SECONDS
            with self._wanted:
                want = self._next_ask()
                changes, self._changes = self._changes, {}
                queries, self._queries = self._queries, set()
                is_last = self._is_stopping
                if want is not None:
                    self._asked = want
                    self._ask_at_s = time.monotonic() + self._limits.ask_interval_ms / 1000
            sent = list(changes.values())
            try:
                self.calls += 1
                answer = self._store.exchange(
                    self._node, sent, want=want, weight=self._weight, query=sorted(queries)
                )
            except Exception as error:
                # Other errors than TokensUnavailable are bugs; the thread survives them all.
                pause_s = min(max(2 * pause_s, RETRY_SECONDS_MIN), RETRY_SECONDS_MAX)
                self._keep(changes, queries, error)
                if is_last:
                    return
                continue
            pause_s = 0.0
            self.is_away = False
            self._took(len(answer.granted))
            try:
                self._on_answer(sent, answer)
            except Exception:
                _log.exception("an answer of the token store could not be handled")
            if is_last:
                return

    def _has_to_call(self) -> bool:
        """Wait until there is something to send to the store; False at the end."""
        with self._wanted:
            while not (self._changes or self._queries or self._next_ask() is not None):
                if self._is_stopping:
                    return False
                self._wanted.wait(max(0.0, self._ask_at_s - time.monotonic()) or None)
        return True

    def _next_ask(self) -> int | None:
        """How many tokens to ask for in the next exchange; None if the store knows it already."""
        want = 0 if self._is_stopping else self._want()
        is_due = want > 0 and time.monotonic() >= self._ask_at_s
        return want if want != self._asked or is_due else None

    def _keep(
        self, changes: dict[tuple[type, int], TokenChange], queries: set[int], error: Exception
    ) -> None:
        self.failures += 1
        if not self.is_away:
            is_known = isinstance(error, TokensUnavailable)
            _log.warning("%s", error, exc_info=None if is_known else error)
            self.is_away = True
        with self._wanted:
            self._changes = {
                **{key: it for key, it in changes.items() if is_newer(it, self._changes.get(key))},
                **{key: it for key, it in self._changes.items() if is_newer(it, changes.get(key))},
            }
            self._queries |= queries
            # Whether the store got the ask is unknown.
            self._asked = -1

    def _took(self, tokens: int) -> None:
        with self._wanted:
            self._asked = max(0, self._asked - tokens)
            if self._asked:
                self._wanted.notify_all()

    def _wait(self) -> None:
        while True:
            with self._wanted:
                while self._asked <= 0 and not self._is_stopping:
                    self._wanted.wait()
                if self._is_stopping:
                    return
            try:
                self.calls += 1
                tokens = self._store.wait(self._node, WAIT_SECONDS)
                if tokens:
                    self._took(len(tokens))
                    self._on_granted(tokens)
            except TokensUnavailable:
                self._stopping.wait(RETRY_SECONDS_MAX)
            except Exception:
                _log.exception("waiting for tokens starts again")
                self._stopping.wait(RETRY_SECONDS_MAX)


def is_newer(change: TokenChange, known: TokenChange | None) -> bool:
    """Whether a change replaces another of its kind and partition.

    Threads may add their changes out of order, so an older fence does not replace a newer one,
    unless it is forced.
    """
    is_forced = isinstance(change, Put | Renew) and change.is_forced
    return known is None or is_forced or change.fence >= known.fence
