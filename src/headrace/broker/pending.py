"""An answer that is not there yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headrace.protocol.schema import Message


class Pending:
    """A response to come: whoever holds it resolves it once; the connection waits for it.

    Much lighter than an asyncio future: it runs its one callback at once instead of through the
    loop, which matters when every acks=all produce makes one.
    """

    __slots__ = ("_callback", "holds_line", "response")

    def __init__(self, *, holds_line: bool = True) -> None:
        self.response: Message | None = None
        self._callback: Callable[[Pending], None] | None = None
        # False lets the connection execute its next request before this one is answered
        # (answers still leave in order): right for produces, which only wait for a sync.
        self.holds_line = holds_line

    def resolve(self, response: Message) -> None:
        """Give the response; a second call is ignored (a timeout may race with success)."""
        if self.response is None:
            self.response = response
            if self._callback is not None:
                self._callback(self)

    async def wait(self) -> Message:
        """The response, once it is there; for those who can await."""
        if self.response is None:
            came = asyncio.Event()
            self.on_resolved(lambda _: came.set())
            await came.wait()
        assert self.response is not None
        return self.response

    def on_resolved(self, callback: Callable[[Pending], None]) -> None:
        """Run `callback` when resolved, or now if it already is."""
        self._callback = callback
        if self.response is not None:
            callback(self)
