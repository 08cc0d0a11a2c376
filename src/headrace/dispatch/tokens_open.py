"""Which token store an address means."""

from __future__ import annotations

from pathlib import Path

from headrace.dispatch.limits import Limits
from headrace.dispatch.sharing import POLICIES, Policy
from headrace.dispatch.tokens import TokenStore
from headrace.dispatch.tokens_redis import PREFIX, RedisTokens
from headrace.dispatch.tokens_sqlite import SqliteTokens

_REDIS = ("redis:", "rediss:", "redis+cluster:", "unix:")


def open_tokens(
    url: str | Path,
    topic: str,
    limits: Limits | None = None,
    policy: Policy = "fair",
    *,
    prefix: str = PREFIX,
) -> TokenStore:
    """A store by its address: `redis://…`, `redis+cluster://…`, `sqlite:///FILE`, or a path.

    It connects when it is first used (a file is opened at once). All nodes of a topic must give
    the same address, prefix, limits and policy.
    """
    if policy not in POLICIES:
        raise ValueError(f"there is no policy {policy!r}: one of {', '.join(POLICIES)}")
    text = str(url)
    if text.startswith(_REDIS):
        return RedisTokens(text, topic, limits, policy, prefix=prefix)
    if text.startswith("sqlite:"):
        text = text.removeprefix("sqlite:").removeprefix("///")
    elif "://" in text:
        raise ValueError(f"tokens are in redis://…, sqlite:///FILE or a file, not in {text}")
    return SqliteTokens(text, topic, limits, policy)
