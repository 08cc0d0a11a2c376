"""Tokens in Redis: lost state, an absent server, few calls, a cluster's hash slots."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from tests.redis_server import RedisServer
from tests.waiting import wait_until

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.options import DispatchLimits
from headrace.dispatch.tokens.redis_store import RedisTokens
from headrace.dispatch.tokens.store import Fence, Put, Token


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A server of the test's own, to be flushed and stopped."""
    with RedisServer() as server:
        yield server


def calls(client: Any) -> int:
    stats = client.info("commandstats")
    # What a script does inside the server is no call.
    names = ("cmdstat_evalsha", "cmdstat_blmpop", "cmdstat_blpop")
    return sum(stats[name]["calls"] for name in names if name in stats)


def test_a_flushed_server_is_born_anew(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    before = store.exchange("a", [Put(0, Fence(1, 5))])
    redis.Redis.from_url(server.url).flushall()
    after = store.exchange("a", query=[0])
    assert after.incarnation != before.incarnation
    assert after.views == {0: None}
    assert after.age_ms < DispatchLimits().lease_ms
    store.close()


def test_what_no_node_has_written_stops_nobody(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    store.exchange("a", [Put(number, Fence(1, 5)) for number in range(3)])
    client = redis.Redis.from_url(server.url)
    prefix = "headrace:dispatch:{jobs}:"
    client.hset(f"{prefix}tokens", "1", "idle -1 5 0 ")
    client.hset(f"{prefix}waiting", mapping={"zero": "1 0 7 7", "mad": "1 inf inf 1"})
    answer = store.exchange("b", want=3, query=[1])
    assert [token.partition for token in answer.granted] == [0, 2]
    assert answer.views == {1: None}
    assert store.status().waiting == {"b": 1}
    # Its owner puts it back.
    store.exchange("a", [Put(1, Fence(1, 6))])
    assert store.wait("b", 5) == [Token(1, Fence(1, 6))]
    client.close()
    store.close()


def test_a_refused_call_is_not_called_an_absent_server(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    client = redis.Redis.from_url(server.url)
    client.set("headrace:dispatch:{jobs}:tokens", "of somebody else")
    with pytest.raises(TokensUnavailable, match="Redis answers but refuses"):
        store.exchange("a", query=[1])
    client.close()
    store.close()


def test_a_server_that_is_away_raises_one_error_and_is_found_again(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    store.exchange("a")
    server.stop()
    with pytest.raises(TokensUnavailable, match="is Redis running"):
        store.exchange("a")
    with pytest.raises(TokensUnavailable):
        store.wait("a", 1)
    with pytest.raises(TokensUnavailable):
        store.status()
    server.start()
    assert store.exchange("a", [Put(0, Fence(1, 0))], want=1).granted == [Token(0, Fence(1, 0))]
    store.close()


def test_closing_ends_a_wait_of_another_thread(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    store.exchange("a", want=1)
    found: list[list[Token]] = []
    thread = threading.Thread(target=lambda: found.append(store.wait("a", 60)))
    thread.start()
    blocked: Any = redis.Redis.from_url(server.url)
    wait_until(lambda: blocked.info("clients")["blocked_clients"] > 0)
    store.close()
    thread.join(30)
    assert found == [[]]


def test_a_wait_is_woken_by_a_token(server: RedisServer) -> None:
    store = RedisTokens(server.url, "jobs")
    store.exchange("a", want=1)
    found: list[list[Token]] = []
    thread = threading.Thread(target=lambda: found.append(store.wait("a", 60)))
    thread.start()
    store.exchange("owner", [Put(0, Fence(1, 0))])
    thread.join(30)
    assert found == [[Token(0, Fence(1, 0))]]
    store.close()


def test_an_older_server_gives_one_token_at_a_time(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisTokens(server.url, "jobs")

    def unknown(*args: object, **options: object) -> None:
        raise redis.ResponseError("unknown command 'BLMPOP'")

    monkeypatch.setattr(redis.Redis, "blmpop", unknown)
    store.exchange("a", want=2)
    store.exchange("owner", [Put(0, Fence(1, 0)), Put(1, Fence(1, 0))])
    assert store.wait("a", 30) == [Token(0, Fence(1, 0))]
    assert store.wait("a", 30) == [Token(1, Fence(1, 0))]
    store.close()


def test_topics_and_prefixes_do_not_meet(server: RedisServer) -> None:
    stores = [
        RedisTokens(server.url, "jobs"),
        RedisTokens(server.url, "other"),
        RedisTokens(server.url, "jobs", prefix="staging"),
    ]
    stores[0].exchange("owner", [Put(0, Fence(1, 0))])
    assert [len(store.exchange("a", want=1).granted) for store in stores] == [1, 0, 0]
    for store in stores:
        store.close()


def test_a_job_costs_at_most_three_calls(server: RedisServer) -> None:
    """One asks, one is woken, one gives back: the worst case, without any batching."""
    store = RedisTokens(server.url, "jobs")
    store.exchange("owner", [Put(0, Fence(1, 0))], want=0)
    store.exchange("a", want=1)
    client = redis.Redis.from_url(server.url)
    before = calls(client)
    for number in range(1, 101):
        store.exchange("a", want=1)
        store.exchange("owner", [Put(0, Fence(1, number))])
        assert store.wait("a", 30) == [Token(0, Fence(1, number))]
    assert calls(client) - before == 300
    store.close()


def test_a_cluster_finds_all_keys_of_a_topic_in_one_slot() -> None:
    """A node in cluster mode refuses a script that touches more than one slot."""
    with socket.socket() as free:
        # The port of the cluster's own talk is 10,000 above it.
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1] % 20_000 + 20_000
    options = ["--cluster-enabled", "yes", "--bind", "127.0.0.1", "--port", str(port)]
    with RedisServer(options) as server, redis.Redis.from_url(server.url) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        store = RedisTokens(f"redis+cluster://127.0.0.1:{port}", "jobs")
        store.exchange("a", want=2)
        store.exchange("owner", [Put(0, Fence(1, 0)), Put(1, Fence(1, 0))])
        assert len(store.wait("a", 30)) == 2
        keys = list(client.scan_iter())
        assert len({client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == 1
        store.close()


def test_a_cluster_that_is_not_there_raises_the_same_error() -> None:
    with pytest.raises(TokensUnavailable):
        RedisTokens("redis+cluster://127.0.0.1:1", "jobs")
