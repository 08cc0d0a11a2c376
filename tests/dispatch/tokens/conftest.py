"""Every store behind the token port, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.dispatch.tokens.stores import Clock, TableStore, redis_tokens, sqlite_tokens

from headrace.dispatch.tokens.store import TokenStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["table", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, clock: Clock, tmp_path: Path) -> Iterator[TokenStore]:
    """An empty store of each kind."""
    found: TokenStore
    if request.param == "table":
        found = TableStore(clock)
    elif request.param == "sqlite":
        found = sqlite_tokens(tmp_path, clock)
    else:
        found = redis_tokens(request.getfixturevalue("redis_server").url, clock)
    yield found
    found.close()
