"""An inbox in Redis, for effects that are in no database; its promise is weaker than a table's.

Before the handler runs, its id is set for the time of a lease; when the handler is done, for as
long as ids are remembered. If the process dies between the two, the message runs once more after
the lease ends, and so does everything that Redis forgets. A message is never skipped because
another process has merely begun it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.store.columns import plain_id
from headrace.store.errors import StoreUnavailable
from headrace.timing.durations import duration_ms

if TYPE_CHECKING:
    from headrace.store import Transaction

PREFIX = "headrace:inbox"
TIMEOUT_SECONDS = 5.0

_log = logging.getLogger("headrace.inbox")

# The three scripts get the keys, the holder's name and a time in milliseconds. The answer for each
# id: 1 it is new, 0 it is done, -1 another holder has it in progress.
_CLAIM = """
local answers = {}
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if not holder or holder == ARGV[1] then
    redis.call('SET', key, ARGV[1], 'PX', ARGV[2])
    answers[i] = 1
  elseif holder == 'done' then
    answers[i] = 0
  else
    answers[i] = -1
  end
end
return answers
"""
_DONE = """
for _, key in ipairs(KEYS) do
  redis.call('SET', key, 'done', 'PX', ARGV[2])
end
"""
_RELEASE = """
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    redis.call('DEL', key)
  end
end
"""


class RedisInbox:
    """Ids of consumed messages in Redis.

    `lease` must be longer than a handler needs for a group of messages; after a crash, messages in
    progress wait for its end.
    """

    def __init__(
        self, url: str, *, keep: str | int = "7d", lease: str | int = "1m", prefix: str = PREFIX
    ) -> None:
        self._keep_ms = duration_ms(keep)
        self._lease_ms = duration_ms(lease)
        self._prefix = prefix
        self._process = uuid.uuid4().hex
        self._redis = _connect(url)
        self._claim = self._redis.register_script(_CLAIM)
        self._done = self._redis.register_script(_DONE)
        self._release = self._redis.register_script(_RELEASE)

    def claim(
        self, tx: Transaction | None, consumer: str, ids: Sequence[str], now_ms: int = 0
    ) -> set[str]:
        """Claim the ids that are new; StoreUnavailable while another holder has one.

        The caller then tries again: the other holder finishes it, or its lease ends.
        """
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return set()
        answers = self._run(self._claim, consumer, wanted, self._lease_ms)
        if -1 in answers:
            taken = [id for id, answer in zip(wanted, answers, strict=True) if answer == 1]
            self.release(consumer, taken)
            raise StoreUnavailable(
                f"another process or thread has message {wanted[answers.index(-1)]} in progress",
                f"a retry follows until it is done or {self._lease_ms} ms have passed",
            )
        return {id for id, answer in zip(wanted, answers, strict=True) if answer == 1}

    def done(self, consumer: str, ids: Sequence[str]) -> None:
        """Remember that these are handled; a failure is only logged, since the effect is done."""
        self._try(self._done, consumer, ids, self._keep_ms)

    def release(self, consumer: str, ids: Sequence[str]) -> None:
        """Release what failed; a failure is only logged, since the lease ends by itself."""
        self._try(self._release, consumer, ids, 0)

    def find(self, consumer: str, id: str) -> str | None:
        """The state of an id: "done", "in progress", or None if it is unknown."""
        (key,) = self._keys(consumer, [id])
        with _redis_errors():
            holder = self._redis.get(key)
        return None if holder is None else "done" if holder == b"done" else "in progress"

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def _keys(self, consumer: str, ids: Sequence[str]) -> list[str]:
        # The braces keep a consumer's keys on one node of a Redis cluster, as scripts require.
        return [f"{self._prefix}:{{{consumer}}}:{plain_id(id)}" for id in ids]

    def _run(self, script: Any, consumer: str, ids: Sequence[str], time_ms: int) -> list[int]:
        # One thread makes and ends a claim, one at a time; of two threads with the same id, one
        # must wait.
        holder = f"{self._process}-{threading.get_ident()}"
        with _redis_errors():
            answer: list[int] = script(keys=self._keys(consumer, ids), args=[holder, time_ms])
            return answer

    def _try(self, script: Any, consumer: str, ids: Sequence[str], time_ms: int) -> None:
        if not ids:
            return
        try:
            self._run(script, consumer, ids, time_ms)
        except StoreUnavailable as problem:
            _log.warning("%d messages of %s may run again: %s", len(ids), consumer, problem)


class _redis_errors:
    """Turns errors of redis-py into StoreUnavailable."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import redis

        if isinstance(error, redis.RedisError):
            raise StoreUnavailable(
                f"the inbox in Redis is not available: {error}", "is Redis running and reachable?"
            ) from error


def _connect(url: str) -> Any:
    try:
        import redis
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "an inbox in Redis needs redis-py, which is not installed: "
            "pip install 'headrace[redis]'",
            name="redis",
        ) from None
    return redis.Redis.from_url(
        url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
    )
