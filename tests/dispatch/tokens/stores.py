"""Token stores to compare: the pure table in memory, a file, and a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.redis_store import RedisTokens
from headrace.dispatch.tokens.scheduler import Policy
from headrace.dispatch.tokens.sqlite_store import SqliteTokens
from headrace.dispatch.tokens.store import Answer, StoreStatus, Token, TokenChange, TokenStore
from headrace.dispatch.tokens.token_table import TokenTable

LIMITS = DispatchLimits(lease_ms=1_000, offer_ms=100)

_numbers = count()

# Makes a store with nothing in it.
Make = Callable[[Policy], TokenStore]


class Clock:
    """A clock that the test moves, in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


class TableStore:
    """The pure table behind the port."""

    def __init__(self, clock: Clock, policy: Policy = "fair") -> None:
        self._clock = clock
        self._table = TokenTable("table", clock.now_ms, LIMITS, policy)

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        return self._table.exchange(
            node, changes, self._clock(), want=want, weight=weight, query=query
        )

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        return self._table.collect(node, self._clock())

    def status(self) -> StoreStatus:
        return self._table.status(self._clock())

    def close(self) -> None: ...


def sqlite_tokens(folder: Path, clock: Clock, policy: Policy = "fair") -> SqliteTokens:
    """A topic of its own in the folder's file."""
    path = folder / "tokens.db"
    return SqliteTokens(path, f"topic {next(_numbers)}", LIMITS, policy, clock=clock)


def redis_tokens(url: str, clock: Clock, policy: Policy = "fair") -> RedisTokens:
    """A topic of its own in this server."""
    return RedisTokens(url, f"topic {next(_numbers)}", LIMITS, policy, clock=clock)
