"""The tokens of a topic: the right to send the next job to a partition.

`store.py` says what a store does and what passes between it and the nodes. `token_table.py` is
the rule: pure, and kept as one row by `sqlite_store.py`; `scheduler.py` decides whose turn it is.
`redis_store.py` runs the same rule as a Lua script, `exchange.lua`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.dispatch.options import DispatchLimits
    from headrace.dispatch.tokens.scheduler import Policy
    from headrace.dispatch.tokens.store import TokenStore

_REDIS = ("redis:", "rediss:", "redis+cluster:", "unix:")


def open_tokens(
    url: str | Path,
    topic: str,
    limits: DispatchLimits | None = None,
    policy: Policy = "fair",
    *,
    prefix: str | None = None,
) -> TokenStore:
    """Open the store at `redis://…`, `redis+cluster://…`, `sqlite:///FILE`, or a path.

    Redis is connected to on first use, a file is opened at once. All nodes of a topic must use
    the same address, prefix, limits and policy.
    """
    from headrace.dispatch.tokens.redis_store import PREFIX, RedisTokens
    from headrace.dispatch.tokens.scheduler import POLICIES
    from headrace.dispatch.tokens.sqlite_store import SqliteTokens

    if policy not in POLICIES:
        raise ValueError(f"policy={policy!r} is not a policy; use one of {', '.join(POLICIES)}")
    text = str(url)
    if text.startswith(_REDIS):
        return RedisTokens(text, topic, limits, policy, prefix=prefix or PREFIX)
    if text.startswith("sqlite:"):
        text = text.removeprefix("sqlite:").removeprefix("///")
    elif "://" in text:
        raise ValueError(f"tokens={text!r} is not a token store; use redis://… or sqlite:///FILE")
    return SqliteTokens(text, topic, limits, policy)
