"""Tokens in a file: several processes, a damaged file, a locked one."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from pathlib import Path

import pytest

from headrace.dispatch.errors import TokensUnavailable
from headrace.dispatch.tokens import sqlite_store
from headrace.dispatch.tokens.sqlite_store import SqliteTokens
from headrace.dispatch.tokens.store import Fence, Put, Renew, Token

PARTITIONS = 4
ROUNDS = 100


def take_and_give_back(path: str, node: str) -> None:
    """What a process does that owns all partitions and takes all it can."""
    store = SqliteTokens(path, "jobs")
    taken = 0
    while taken < ROUNDS:
        granted = store.exchange(node, want=1).granted or store.wait(node, 60)
        taken += len(granted)
        store.exchange(
            node,
            [Put(p, Fence(fence.epoch, fence.next_offset + 1)) for p, fence in granted],
            want=0,
        )
    store.close()


def test_processes_share_the_tokens_of_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "tokens.db")
    store = SqliteTokens(path, "jobs")
    store.exchange("owner", [Put(p, Fence(1, 0)) for p in range(PARTITIONS)])
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=take_and_give_back, args=(path, f"node {number}"))
        for number in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    tokens = store.status().tokens
    # Every token that was taken came back with the next fence, and none was taken twice.
    assert sum(seen.fence.next_offset for seen in tokens.values()) >= 2 * ROUNDS
    assert store.status().counts()["idle"] == PARTITIONS
    store.close()


def test_a_wait_is_woken_through_the_file(tmp_path: Path) -> None:
    waiting = SqliteTokens(tmp_path / "tokens.db", "jobs")
    other = SqliteTokens(tmp_path / "tokens.db", "jobs")
    waiting.exchange("a", want=1)
    found: list[list[Token]] = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait("a", 60)))
    thread.start()
    other.exchange("owner", [Put(0, Fence(1, 0))])
    thread.join(30)
    assert found == [[Token(0, Fence(1, 0))]]
    waiting.close()
    other.close()


def test_closing_ends_a_wait_of_another_thread(tmp_path: Path) -> None:
    store = SqliteTokens(tmp_path / "tokens.db", "jobs")
    found: list[list[Token]] = []
    thread = threading.Thread(target=lambda: found.append(store.wait("a", 60)))
    thread.start()
    store.close()
    thread.join(30)
    assert found == [[]]


def test_a_wait_that_brings_nothing_ends(tmp_path: Path) -> None:
    store = SqliteTokens(tmp_path / "tokens.db", "jobs")
    assert store.wait("a", 0.01) == []
    store.close()


def test_a_file_that_is_no_database_is_told_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "tokens.db"
    path.write_bytes(b"something else entirely, and long enough to be looked at as a header" * 20)
    with pytest.raises(TokensUnavailable, match="may be removed"):
        SqliteTokens(path, "jobs")


def test_a_locked_file_is_unavailable_and_harmed_by_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "TIMEOUT_SECONDS", 0.05)
    store = SqliteTokens(tmp_path / "tokens.db", "jobs")
    store.exchange("owner", [Put(0, Fence(1, 0))])
    holder = sqlite3.connect(tmp_path / "tokens.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(TokensUnavailable):
        store.exchange("runner", [Renew(0, Fence(1, 0))])
    holder.execute("ROLLBACK")
    holder.close()
    assert store.exchange("a", want=1).granted == [Token(0, Fence(1, 0))]
    store.close()


def test_a_store_is_found_again_with_all_it_knew(tmp_path: Path) -> None:
    store = SqliteTokens(tmp_path / "tokens.db", "jobs")
    incarnation = store.exchange("a", [Put(0, Fence(1, 0))]).incarnation
    store.close()
    again = SqliteTokens(tmp_path / "tokens.db", "jobs")
    assert again.exchange("a", want=1).granted == [Token(0, Fence(1, 0))]
    assert again.exchange("a").incarnation == incarnation
    again.close()


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_new_file_that_another_process_writes_to_is_waited_for(tmp_path: Path, lock: str) -> None:
    # Not in WAL mode yet, as a file is while the first process to open it sets it up.
    holder = sqlite3.connect(tmp_path / "tokens.db", isolation_level=None, check_same_thread=False)
    holder.execute(f"BEGIN {lock}")
    release = threading.Timer(0.2, lambda: holder.execute("COMMIT"))
    release.start()
    store = SqliteTokens(tmp_path / "tokens.db", "jobs")
    release.join()
    holder.close()
    assert store.exchange("owner", [Put(0, Fence(1, 0))]).verdicts == ["ok"]
    store.close()


def test_a_new_file_that_stays_locked_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "OPEN_SECONDS", 0.05)
    holder = sqlite3.connect(tmp_path / "tokens.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(TokensUnavailable, match="another process may hold the file"):
        SqliteTokens(tmp_path / "tokens.db", "jobs")
    holder.close()
