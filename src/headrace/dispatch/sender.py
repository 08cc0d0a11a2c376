"""The submitting side of the protocol, pure: which item is sent with which token.

An item is waiting (for a token), sent, or finished. A refused one waits again, before all others;
so does one whose sending failed, after a pause, even if it may have arrived: it is better run twice
than lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Literal

from headrace.dispatch.effects import Effect, Send, Store
from headrace.dispatch.fences import Token
from headrace.dispatch.tokens import Return

Outcome = Literal["done", "failed", "refused"]


class Sender:
    """The unfinished items of one node."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._queue: deque[str] = deque()
        # Unfinished items: None while one waits, else the token it was sent with.
        self._items: dict[str, Token | None] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def want(self) -> int:
        """How many items wait for a token."""
        return self._waiting

    def submitted(self, ids: Iterable[str]) -> None:
        """New items, which wait behind those before them."""
        for item_id in ids:
            if item_id not in self._items:
                self._items[item_id] = None
                self._queue.append(item_id)
                self._waiting += 1

    def granted(self, tokens: Iterable[Token]) -> list[Effect]:
        """Tokens came: each sends the oldest item, and goes back when none waits."""
        effects: list[Effect] = []
        for token in tokens:
            item_id = self._oldest()
            if item_id is None:
                self.counts["returned"] += 1
                effects.append(Store(Return(token.partition, token.fence)))
            else:
                self._items[item_id] = token
                self._waiting -= 1
                self.counts["sent"] += 1
                effects.append(Send(item_id, token))
        return effects

    def failed(self, item_id: str, token: Token, *, surely: bool) -> list[Effect]:
        """Sending failed, and `again` will follow; `surely`: the record is not in the log."""
        self.counts["not sent"] += 1
        return [Store(Return(token.partition, token.fence))] if surely else []

    def again(self, item_id: str, token: Token) -> None:
        """The pause after a failed sending is over: the item waits again."""
        self._again(item_id, token)

    def outcome(self, item_id: str, outcome: Outcome, token: Token | None) -> bool:
        """What became of an item that was sent with this token; whether it is now finished."""
        if item_id not in self._items:
            return False
        if outcome == "refused":
            self.counts["refused"] += 1
            self._again(item_id, token)
            return False
        if self._items.pop(item_id) is None:
            self._waiting -= 1
        return True

    def lost(self, item_id: str) -> None:
        """The item's partition has gone on without an outcome of it: it waits again."""
        token = self._items.get(item_id)
        if token is not None:
            self.counts["lost"] += 1
            self._again(item_id, token)

    def _again(self, item_id: str, token: Token | None) -> None:
        # What is said about an earlier sending of an item that is on its way again is old news.
        if token is not None and self._items.get(item_id) == token:
            self._items[item_id] = None
            self._queue.appendleft(item_id)
            self._waiting += 1

    def _oldest(self) -> str | None:
        while self._queue:
            item_id = self._queue.popleft()
            # A finished one may still be in the queue, and one that is already sent.
            if item_id in self._items and self._items[item_id] is None:
                return item_id
        return None
