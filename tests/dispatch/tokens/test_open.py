"""Which store an address means."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens import open_tokens
from headrace.dispatch.tokens.redis_store import RedisTokens
from headrace.dispatch.tokens.sqlite_store import SqliteTokens
from headrace.dispatch.tokens.store import Fence


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


def test_limits_that_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="heal_misses"):
        DispatchLimits(heal_misses=0)
    with pytest.raises(ValueError, match="three times"):
        DispatchLimits(lease_ms=500, tick_ms=250)


@pytest.mark.parametrize("text", ["", ".", "1", "1.", ".2", "a.b", "-1.2", "1.2.3", "1 .2", "９.1"])
def test_a_fence_that_no_node_wrote_is_none(text: str) -> None:
    assert Fence.parse(text) is None


def test_fences_are_ordered_by_epoch_and_then_by_offset() -> None:
    assert Fence.parse(Fence(12, 3456).text()) == Fence(12, 3456)
    assert Fence(2, 0) > Fence(1, 99) > Fence(1, 98)
