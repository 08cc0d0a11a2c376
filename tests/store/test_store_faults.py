"""A database that is full, read-only, busy, stopped or gone: said clearly, and nothing is lost."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import event
from tests.handlers.endings import ends_with
from tests.handlers.fake_kafka import FakeProducer
from tests.postgres import Postgres, programs
from tests.waiting import WAIT_SECONDS

from headrace.outbox import relay as relay_module
from headrace.outbox.relay import Relay
from headrace.store import Store, StoreUnavailable, database, open_store
from headrace.store.errors import is_foreign
from headrace.telemetry.alarms import Alarm, Alarms


def claim(store: Store, *ids: str) -> set[str]:
    with store.begin() as tx:
        return store.inbox.claim(tx, "billing", ids, 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An SQLite store that is there already."""
    path = tmp_path / "shop.db"
    store = open_store(f"sqlite:///{path}")
    store.create()
    store.close()
    return path


def test_a_full_sqlite_database_says_so_and_goes_on_when_there_is_room(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")
    pages_max = 60

    @event.listens_for(store.database.engine, "connect")
    def limit(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute(f"PRAGMA max_page_count = {pages_max}")

    with ends_with(StoreUnavailable, "disk is full: free some space"), store.begin() as tx:
        store.inbox.claim(tx, "billing", ["a"], 1)
        tx.send("receipts", b"v" * 1_000_000)
    assert store.outbox.latest() == []
    store.close()
    pages_max = 10_000
    assert claim(store, "a") == {"a"}
    store.close()


def test_a_full_database_inside_a_handler_does_not_pass_for_success(path: Path) -> None:
    store = open_store(f"sqlite:///{path}")

    @event.listens_for(store.database.engine, "connect")
    def limit(raw: sqlite3.Connection, _record: object) -> None:
        raw.execute("PRAGMA max_page_count = 60")

    with ends_with(Exception, "full|failed inside"), store.begin() as tx:
        store.inbox.claim(tx, "billing", ["a"], 1)
        # A handler that swallows what it does not know.
        with pytest.raises(sqlite3.OperationalError):
            tx.driver.execute(
                "INSERT INTO headrace_meta (name, value) VALUES ('x', ?)", ("v" * 1_000_000,)
            )
        tx.send("receipts", b"v" * 1_000_000)
    store.close()
    store = open_store(f"sqlite:///{path}")
    assert claim(store, "a") == {"a"}
    store.close()


def test_a_read_only_sqlite_database_says_so(path: Path) -> None:
    store = open_store(f"sqlite:///file:{path}?mode=ro&uri=true")
    assert store.inbox.find("a") == []
    with ends_with(StoreUnavailable, "read-only: give this user write access"):
        claim(store, "a")
    store.close()


def test_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, bread, a pound of butter\n" * 100)
    with ends_with(StoreUnavailable, "not an SQLite database"):
        open_store(f"sqlite:///{path}").create()


def test_another_process_that_holds_sqlite_too_long_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    store = open_store(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with ends_with(StoreUnavailable, "another process holds the database"):
            claim(store, "a")
        other.execute("COMMIT")
    assert claim(store, "a") == {"a"}
    store.close()


def test_a_thread_that_holds_sqlite_too_long_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 50)
    store = open_store(f"sqlite:///{path}")
    errors: list[Exception] = []

    def other() -> None:
        try:
            claim(store, "b")
        except StoreUnavailable as error:
            errors.append(error)

    with store.begin():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(WAIT_SECONDS)
        with ends_with(Exception, "this thread already has a transaction open"):
            claim(store, "c")
    assert "another thread" in str(errors[0])
    assert claim(store, "b") == {"b"}
    store.close()


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A PostgreSQL server that a test may stop."""
    if programs() is None:
        pytest.skip("PostgreSQL is not installed")
    with Postgres() as server:
        yield server


def test_postgres_restarted_in_a_transaction_undoes_it_and_serves_again(server: Postgres) -> None:
    store = open_store(server.database())
    store.create()
    with ends_with(StoreUnavailable, "PostgreSQL|server"), store.begin() as tx:
        store.inbox.claim(tx, "billing", ["a"], 1)
        tx.send("receipts", b"1")
        server.restart()
    # The pool has other connections that do not know it yet; each may say so once.
    assert claim(store, "a") == {"a"}
    server.stop()
    with ends_with(StoreUnavailable, "is PostgreSQL running"):
        claim(store, "b")
    with ends_with(StoreUnavailable, "is PostgreSQL running"):
        store.inbox.find("b")
    server.start()
    assert claim(store, "a", "b") == {"b"}
    assert store.outbox.latest() == []
    store.close()


def test_a_read_only_postgres_says_so(server: Postgres) -> None:
    url = server.database()
    store = open_store(url)
    store.create()
    store.close()
    standby = open_store(f"{url}%20-cdefault_transaction_read_only%3Don")
    assert standby.inbox.find("a") == []
    with ends_with(StoreUnavailable, "refuses writes: is it a standby"):
        claim(standby, "a")
    standby.close()


def test_the_relay_waits_for_the_database_and_goes_on(
    server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_module, "STUCK_PAUSE_SECONDS", 0.05)
    store = open_store(server.database())
    store.create()
    producer = FakeProducer()
    heard = threading.Event()
    rung: list[Alarm] = []

    def hear(alarm: Alarm) -> None:
        rung.append(alarm)
        heard.set()

    alarms = Alarms()
    alarms.add(hear)
    stop = threading.Event()
    written = threading.Event()
    producer.on_flush = written.set
    relay = threading.Thread(target=Relay(store, producer, alarms=alarms).run, args=(stop,))
    relay.start()
    try:
        with store.begin() as tx:
            first = tx.send("orders", b"1")
        assert written.wait(WAIT_SECONDS)
        written.clear()
        server.stop()
        assert heard.wait(WAIT_SECONDS)
        server.start()
        with store.begin() as tx:
            second = tx.send("orders", b"2")
        assert written.wait(WAIT_SECONDS)
    finally:
        stop.set()
        relay.join(WAIT_SECONDS)
    # The first may be there twice: the database went before it could be marked.
    assert list(dict.fromkeys(producer.ids)) == [first, second]
    assert [alarm.name for alarm in rung] == ["outbox-store"]
    assert store.outbox.counts()["sent"] == 2
    store.close()


def test_trouble_with_another_database_is_not_the_stores(path: Path, tmp_path: Path) -> None:
    with (
        closing(open_store(f"sqlite:///{path}")) as store,
        closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as holder,
        closing(sqlite3.connect(tmp_path / "other.db", timeout=0)) as other,
    ):
        holder.execute("BEGIN EXCLUSIVE")
        # Taken for the store's, it would be waited for, and its message never be put away.
        with ends_with(sqlite3.OperationalError, "database is locked"), store.begin():
            other.execute("CREATE TABLE bills (id)")
        assert claim(store, "a") == {"a"}


def test_only_errors_of_its_own_kind_make_a_store_unavailable() -> None:
    full = sqlite3.OperationalError("disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    gone = psycopg.OperationalError("the connection is closed")
    assert (is_foreign(full, "sqlite"), is_foreign(full, "postgresql")) == (False, True)
    assert (is_foreign(gone, "sqlite"), is_foreign(gone, "postgresql")) == (True, False)
    assert not is_foreign(LookupError(), "sqlite")
