"""Which store an address means."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.dispatch.tokens import open_tokens
from headrace.dispatch.tokens.redis_store import RedisTokens
from headrace.dispatch.tokens.sqlite_store import SqliteTokens


def test_a_path_and_an_sqlite_address_mean_a_file(tmp_path: Path) -> None:
    for address in (tmp_path / "a.db", str(tmp_path / "b.db"), f"sqlite:///{tmp_path / 'c.db'}"):
        store = open_tokens(address, "jobs")
        assert isinstance(store, SqliteTokens)
        store.close()
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["a.db", "b.db", "c.db"]


@pytest.mark.parametrize("address", ["redis://localhost:1/0", "unix:///nowhere.sock"])
def test_a_redis_address_means_redis_and_connects_later(address: str) -> None:
    store = open_tokens(address, "jobs")
    assert isinstance(store, RedisTokens)
    store.close()


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(ValueError, match="redis://"):
        open_tokens("postgresql://localhost/x", "jobs")
    with pytest.raises(ValueError, match="fair, race"):
        open_tokens("tokens.db", "jobs", policy="lottery")  # type: ignore[arg-type]
