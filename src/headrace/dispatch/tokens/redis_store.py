"""Tokens in Redis: every exchange is one call of one script, so all nodes see the same order.

A topic's keys share one hash tag and so are on one node of a Redis Cluster. Times are the
server's. `exchange.lua` has the rules of `token_table.py` in Lua.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.scheduler import Policy
from headrace.dispatch.tokens.store import (
    Answer,
    Fence,
    Put,
    Renew,
    Return,
    Revoke,
    StoreStatus,
    Token,
    TokenChange,
    TokenView,
)

PREFIX = "headrace:dispatch"
TIMEOUT_SECONDS = 5.0
WAIT_SECONDS_MAX = 5.0
# Tokens that one wait returns at most; the next exchange returns the others.
WAIT_TOKENS_MAX = 64

# Reads everything in one step, and changes nothing.
_STATUS = """
local time = redis.call('TIME')
return {
  redis.call('HGET', KEYS[1], 'born_ms'), redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[5]), time[1] * 1000 + math.floor(time[2] / 1000),
}
"""

_KEYS = ("meta", "tokens", "idle", "offered", "waiting")
_KINDS: dict[type[TokenChange], str] = {
    Put: "put",
    Renew: "renew",
    Revoke: "revoke",
    Return: "return",
}


class RedisTokens:
    """One topic's tokens; `clock` replaces the server's time, in milliseconds."""

    def __init__(
        self,
        url: str,
        topic: str,
        limits: DispatchLimits | None = None,
        policy: Policy = "fair",
        *,
        prefix: str = PREFIX,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._limits = limits or DispatchLimits()
        self._policy = policy
        self._clock = clock
        self._prefix = f"{prefix}:{{{topic}}}:"
        self._keys = [self._prefix + key for key in _KEYS]
        with _redis_errors():
            self._redis = _connect(url, TIMEOUT_SECONDS)
            # A wait takes longer than any other call may.
            self._waiting = _connect(url, WAIT_SECONDS_MAX + TIMEOUT_SECONDS)
        script = files(__package__).joinpath("exchange.lua").read_text()
        self._script = self._redis.register_script(script)
        self._status = self._redis.register_script(_STATUS)
        self._has_blmpop = True
        self._is_closed = threading.Event()

    def exchange(
        self,
        node: str,
        changes: Sequence[TokenChange] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        query: Sequence[int] = (),
    ) -> Answer:
        """Call the script; see TokenStore."""
        args: list[str | int] = [self._prefix, node, self._now()]
        args += [self._limits.lease_ms, self._limits.offer_ms, self._policy]
        args += ["" if want is None else want, weight, uuid.uuid4().hex, len(changes)]
        for change in changes:
            is_forced = isinstance(change, Put | Renew) and change.is_forced
            kind = _KINDS[type(change)]
            args += [f"force {kind}" if is_forced else kind, change.partition, *change.fence]
        args += query
        with _redis_errors():
            incarnation, age_ms, verdicts, granted, views = self._script(keys=self._keys, args=args)
        return Answer(
            [_token(text) for text in granted],
            [verdict.decode() for verdict in verdicts],
            {p: _view(text) for p, text in zip(query, views, strict=True)},
            incarnation.decode(),
            age_ms,
        )

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        """Block in the server; see TokenStore."""
        deadline_s = time.monotonic() + timeout_s
        found: list[bytes] = []
        while not found and not self._is_closed.is_set():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            try:
                with _redis_errors():
                    found = self._pop(f"{self._prefix}offers:{node}", min(left_s, WAIT_SECONDS_MAX))
            except TokensUnavailable:
                if not self._is_closed.is_set():
                    raise
        return [_token(text) for text in found]

    def status(self) -> StoreStatus:
        """All tokens and waiting nodes; see TokenStore."""
        with _redis_errors():
            born_ms, tokens, waiting, now_ms = self._status(keys=self._keys)
        if self._clock is not None:
            now_ms = self._clock()
        found = {int(p): _stored_view(text, now_ms) for p, text in _pairs(tokens)}
        return StoreStatus(
            dict(sorted(found.items())),
            {node.decode(): int(text.split()[0]) for node, text in _pairs(waiting)},
            0 if born_ms is None else now_ms - int(born_ms),
        )

    def close(self) -> None:
        """Close the connections; see TokenStore."""
        self._is_closed.set()
        for client in (self._redis, self._waiting):
            client.close()
            # Ends a wait of another thread, too.
            for pool in _pools(client):
                pool.disconnect()

    def _now(self) -> str | int:
        return "" if self._clock is None else self._clock()

    def _pop(self, key: str, timeout_s: float) -> list[bytes]:
        import redis

        if self._has_blmpop:
            try:
                found = self._waiting.blmpop(
                    timeout_s, 1, key, direction="LEFT", count=WAIT_TOKENS_MAX
                )
            except redis.ResponseError as error:
                if "unknown command" not in str(error):
                    raise
                # A server before Redis 7 returns one at a time.
                self._has_blmpop = False
            else:
                return list(found[1]) if found else []
        found = self._waiting.blpop([key], timeout_s)
        return [found[1]] if found else []


def _token(text: bytes) -> Token:
    partition, epoch, next_offset = text.split()
    return Token(int(partition), Fence(int(epoch), int(next_offset)))


def _view(text: bytes) -> TokenView | None:
    """A partition as the exchange returns it; empty if the store does not know it."""
    if not text:
        return None
    state, epoch, next_offset, left_ms, node = text.decode().split(" ", 4)
    fence = Fence(int(epoch), int(next_offset))
    return TokenView(fence, state, node, int(left_ms))  # type: ignore[arg-type]


def _stored_view(text: bytes, now_ms: int) -> TokenView:
    """A partition as the store keeps it: the same, but with the time at which the lease ends."""
    view = _view(text)
    assert view is not None
    return view._replace(left_ms=view.left_ms - now_ms if view.left_ms else 0)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class _redis_errors:
    """Turns the errors of redis-py into TokensUnavailable."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import redis

        # Its pool raises built-in errors when it is closed during a call.
        redis_error = redis.RedisError | redis.exceptions.RedisClusterException
        if isinstance(error, redis_error | OSError | ValueError):
            is_refused = isinstance(error, redis.ResponseError)
            raise TokensUnavailable(
                f"the tokens in Redis are not available: {error}",
                "Redis answers but refuses the call; see its log"
                if is_refused
                else "is Redis running and reachable?",
            ) from error


def _pools(client: Any) -> list[Any]:
    if hasattr(client, "get_nodes"):
        nodes = [node.redis_connection for node in client.get_nodes()]
        return [node.connection_pool for node in nodes if node is not None]
    return [client.connection_pool]


def _connect(url: str, timeout_s: float) -> Any:
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "tokens in Redis need redis-py, which is not installed: pip install 'headrace[redis]'",
            name="redis",
        ) from None
    retry: Any = Retry
    settings: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": TIMEOUT_SECONDS,
        # The caller makes a new call from what is true by then, instead of repeating this one.
        "retry": retry(NoBackoff(), 0),
    }
    if url.startswith("redis+cluster:"):
        from redis.cluster import RedisCluster

        return RedisCluster.from_url(url.replace("redis+cluster:", "redis:", 1), **settings)
    return redis.Redis.from_url(url, **settings)
