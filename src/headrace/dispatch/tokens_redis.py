"""Tokens in Redis: every exchange is one call of one script, so all nodes see one order.

A topic's keys share one hash tag and so live on one node of a Redis Cluster. Times are the
server's. What `table.py` says in Python, `exchange.lua` says in Lua.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.fences import Fence, Token
from headrace.dispatch.limits import Limits
from headrace.dispatch.sharing import Policy
from headrace.dispatch.tokens import Answer, Change, Put, Renew, Return, Revoke, Seen, Status

PREFIX = "headrace:dispatch"
TIMEOUT_SECONDS = 5.0
WAIT_SECONDS_MAX = 5.0
# Tokens that one wait brings at most; the next exchange brings the others.
WAIT_TOKENS_MAX = 64

# Reads everything at one time, and changes nothing.
_STATUS = """
local time = redis.call('TIME')
return {
  redis.call('HGET', KEYS[1], 'born_ms'), redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[5]), time[1] * 1000 + math.floor(time[2] / 1000),
}
"""

_KEYS = ("meta", "tokens", "idle", "offered", "waiting")
_KINDS: dict[type[Change], str] = {Put: "put", Renew: "renew", Revoke: "revoke", Return: "return"}


class RedisTokens:
    """One topic's tokens; `clock` gives the time in milliseconds instead of the server's."""

    def __init__(
        self,
        url: str,
        topic: str,
        limits: Limits | None = None,
        policy: Policy = "fair",
        *,
        prefix: str = PREFIX,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._limits = limits or Limits()
        self._policy = policy
        self._clock = clock
        self._prefix = f"{prefix}:{{{topic}}}:"
        self._keys = [self._prefix + key for key in _KEYS]
        with _redis_errors():
            self._redis = _connect(url, TIMEOUT_SECONDS)
            # A wait outlasts the time in which any other call must be answered.
            self._waiting = _connect(url, WAIT_SECONDS_MAX + TIMEOUT_SECONDS)
        script = files(__package__).joinpath("exchange.lua").read_text()
        self._script = self._redis.register_script(script)
        self._status = self._redis.register_script(_STATUS)
        self._has_blmpop = True
        self._is_closed = threading.Event()

    def exchange(
        self,
        node: str,
        changes: Sequence[Change] = (),
        *,
        want: int | None = None,
        weight: int = 1,
        look: Sequence[int] = (),
    ) -> Answer:
        """One call; see TokenStore."""
        args: list[str | int] = [self._prefix, node, self._now()]
        args += [self._limits.lease_ms, self._limits.offer_ms, self._policy]
        args += ["" if want is None else want, weight, uuid.uuid4().hex, len(changes)]
        for change in changes:
            is_forced = isinstance(change, Put | Renew) and change.is_forced
            kind = _KINDS[type(change)]
            args += [f"force {kind}" if is_forced else kind, change.partition, *change.fence]
        args += look
        with _redis_errors():
            born, age_ms, verdicts, granted, seen = self._script(keys=self._keys, args=args)
        return Answer(
            [_token(text) for text in granted],
            [verdict.decode() for verdict in verdicts],
            {p: _seen(text) for p, text in zip(look, seen, strict=True)},
            born.decode(),
            age_ms,
        )

    def wait(self, node: str, timeout_s: float) -> list[Token]:
        """Blocks in the server; see TokenStore."""
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

    def status(self) -> Status:
        """Everything; see TokenStore."""
        with _redis_errors():
            born_ms, tokens, waiting, now_ms = self._status(keys=self._keys)
        if self._clock is not None:
            now_ms = self._clock()
        found = {int(p): _entry(text, now_ms) for p, text in _pairs(tokens)}
        return Status(
            dict(sorted(found.items())),
            {node.decode(): int(text.split()[0]) for node, text in _pairs(waiting)},
            0 if born_ms is None else now_ms - int(born_ms),
        )

    def close(self) -> None:
        """Close the connections; see TokenStore."""
        self._is_closed.set()
        for client in (self._redis, self._waiting):
            client.close()
            # A wait of another thread is cut off, too.
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
                # A server before Redis 7 gives one at a time.
                self._has_blmpop = False
            else:
                return list(found[1]) if found else []
        found = self._waiting.blpop([key], timeout_s)
        return [found[1]] if found else []


def _token(text: bytes) -> Token:
    partition, epoch, next_offset = text.split()
    return Token(int(partition), Fence(int(epoch), int(next_offset)))


def _seen(text: bytes) -> Seen | None:
    """What the exchange says of a partition; empty if the store does not know it."""
    if not text:
        return None
    state, epoch, next_offset, left_ms, node = text.decode().split(" ", 4)
    fence = Fence(int(epoch), int(next_offset))
    return Seen(fence, state, node, int(left_ms))  # type: ignore[arg-type]


def _entry(text: bytes, now_ms: int) -> Seen:
    """What the store keeps of a partition: the same, with the time at which the lease ends."""
    seen = _seen(text)
    assert seen is not None
    return seen._replace(left_ms=seen.left_ms - now_ms if seen.left_ms else 0)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


class _redis_errors:
    """Turns what redis-py raises into TokensUnavailable."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import redis

        # Its pool raises plain ones when it is closed under a caller.
        of_redis = redis.RedisError | redis.exceptions.RedisClusterException
        if isinstance(error, of_redis | OSError | ValueError):
            is_refused = isinstance(error, redis.ResponseError)
            raise TokensUnavailable(
                f"the tokens in Redis are not available: {error}",
                "Redis answers, but refuses the call: see its message, and its log"
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
        # The caller repeats with what is then true, instead of the same call.
        "retry": retry(NoBackoff(), 0),
    }
    if url.startswith("redis+cluster:"):
        from redis.cluster import RedisCluster

        return RedisCluster.from_url(url.replace("redis+cluster:", "redis:", 1), **settings)
    return redis.Redis.from_url(url, **settings)
