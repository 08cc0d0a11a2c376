"""The stores are one machine: whatever is done to them, all give the answers of the pure table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dispatch.tokens.stores import LIMITS, Clock, TableStore, redis_tokens, sqlite_tokens
from tests.redis_server import RedisServer

from headrace.dispatch.tokens.scheduler import POLICIES, Policy
from headrace.dispatch.tokens.store import Answer, Fence, Put, Renew, Return, Revoke, TokenStore

PARTITIONS = (0, 2, 10)
NODES = ("a", "b", "c")

fences = st.builds(Fence, st.integers(1, 3), st.integers(0, 4))
partitions = st.sampled_from(PARTITIONS)
changes = st.one_of(
    st.builds(Put, partitions, fences, st.booleans()),
    st.builds(Renew, partitions, fences, st.booleans()),
    st.builds(Revoke, partitions, fences),
    st.builds(Return, partitions, fences),
)
exchanges = st.fixed_dictionaries(
    {
        "node": st.sampled_from(NODES),
        "changes": st.lists(changes, max_size=4),
        "want": st.none() | st.integers(0, 4),
        "weight": st.sampled_from([1, 2, 3, 16]),
        "query": st.just(PARTITIONS),
    }
)
steps = st.lists(st.one_of(exchanges, st.integers(0, LIMITS.lease_ms)), max_size=25)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def comparable(answer: Answer) -> Answer:
    return replace(answer, incarnation="", age_ms=0)


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(policy=st.sampled_from(POLICIES), steps=steps)
def test_all_stores_answer_alike(
    redis_server: RedisServer, folder: Path, policy: Policy, steps: list[Any]
) -> None:
    clock = Clock()
    model = TableStore(clock, policy)
    stores: list[TokenStore] = [
        sqlite_tokens(folder, clock, policy),
        redis_tokens(redis_server.url, clock, policy),
    ]
    try:
        for step in steps:
            if isinstance(step, int):
                clock.now_ms += step
                continue
            node, made = step["node"], step["changes"]
            rest = {name: step[name] for name in ("want", "weight", "query")}
            expected = comparable(model.exchange(node, made, **rest))
            for store in stores:
                assert comparable(store.exchange(node, made, **rest)) == expected
        for store in stores:
            assert replace(store.status(), age_ms=0) == replace(model.status(), age_ms=0)
    finally:
        for store in stores:
            store.close()
