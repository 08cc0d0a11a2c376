"""What every store must do, whatever database is behind it: transactions and their errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from tests.handlers.endings import ends_with
from tests.handlers.manual_clock import ManualClock
from tests.waiting import WAIT_SECONDS

from headrace.store import (
    Store,
    StoreError,
    StoreUnavailable,
    TransactionBroken,
    open_store,
)

BILLS = Table("bills", MetaData(), Column("id", Integer, primary_key=True), Column("name", String))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.create()
    with store.begin() as tx:
        BILLS.create(tx.connection)
    yield store
    store.close()


def names(store: Store) -> list[str]:
    with store.read() as tx:
        return [row.name for row in tx.execute(select(BILLS).order_by(BILLS.c.id))]


def test_a_transaction_is_committed_at_its_end(store: Store) -> None:
    with store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        tx.execute("INSERT INTO bills (id, name) VALUES (:id, :name)", {"id": 2, "name": "b"})
        mark = "?" if tx.kind == "sqlite" else "%s"
        tx.driver.execute(f"INSERT INTO bills (id, name) VALUES ({mark}, {mark})", (3, "c"))
    assert names(store) == ["a", "b", "c"]


def test_an_exception_undoes_the_transaction_and_goes_on(store: Store) -> None:
    with ends_with(LookupError), store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        tx.send("receipts", b"1")
        tx.driver.execute("INSERT INTO bills (id, name) VALUES (2, 'b')")
        raise LookupError
    assert names(store) == []
    assert store.outbox.latest() == []


def test_the_callers_own_errors_stay_what_they_are(store: Store) -> None:
    with ends_with(IntegrityError), store.begin() as tx:
        for _ in range(2):
            tx.execute(insert(BILLS).values(id=1, name="a"))
    with pytest.raises(DBAPIError, match="missing"), store.begin() as tx:
        tx.execute("SELECT * FROM missing")
    with store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
    assert names(store) == ["a"]


def test_a_savepoint_is_undone_alone(store: Store) -> None:
    with store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        kept = tx.send("receipts", b"1")
        with ends_with(IntegrityError), tx.savepoint():
            tx.send("receipts", b"2")
            tx.execute(insert(BILLS).values(id=1, name="again"))
        with tx.savepoint():
            also_kept = tx.send("receipts", b"3")
    assert names(store) == ["a"]
    assert [row.id for row in store.outbox.latest()] == [also_kept, kept]


def test_a_swallowed_error_does_not_pass_for_success(store: Store) -> None:
    if store.kind == "sqlite":
        # SQLite undoes only the statement, so the rest may be kept.
        with store.begin() as tx:
            tx.execute(insert(BILLS).values(id=1, name="a"))
            with pytest.raises(SQLAlchemyError):
                tx.execute(insert(BILLS).values(id=1, name="a"))
        assert names(store) == ["a"]
        return
    with ends_with(TransactionBroken, "savepoint"), store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        with pytest.raises(SQLAlchemyError):
            tx.execute(insert(BILLS).values(id=1, name="a"))
    assert names(store) == []


def test_a_transaction_that_sqlite_has_dropped_does_not_pass_for_success(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'shop.db'}")
    store.create()
    with ends_with(TransactionBroken), store.begin() as tx:
        tx.send("receipts", b"1")
        tx.flush()
        # As SQLite does by itself on some errors, a full disk among them.
        tx.driver.execute("ROLLBACK")
    assert store.outbox.latest() == []
    store.close()


def test_the_callers_commit_is_refused(store: Store) -> None:
    with ends_with(TransactionBroken, "ended inside"), store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        tx.connection.commit()


def test_creating_twice_and_at_once_is_safe(store_url: str) -> None:
    stores = [open_store(store_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(store.create) for store in stores]:
            made.result(WAIT_SECONDS)
    assert len({store.id for store in stores}) == 1
    for store in stores:
        store.close()


def test_a_store_knows_whether_it_exists(store_url: str) -> None:
    store = open_store(store_url)
    assert not store.exists()
    store.create()
    assert store.exists()
    store.close()


def test_tables_of_another_version_are_refused(store: Store) -> None:
    with store.begin() as tx:
        tx.execute("UPDATE headrace_meta SET value = '99' WHERE name = 'schema'")
    with pytest.raises(StoreError, match="version 99"):
        store.create()


def test_many_threads_write_at_once(store: Store) -> None:
    def write(number: int) -> None:
        with store.begin() as tx:
            tx.execute(insert(BILLS).values(id=number, name=str(number)))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(80)))
    assert names(store) == [str(number) for number in range(80)]


def test_reading_does_not_wait_for_a_writer(store: Store) -> None:
    with store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
        found: list[list[str]] = []
        reader = threading.Thread(target=lambda: found.append(names(store)))
        reader.start()
        reader.join(WAIT_SECONDS)
        assert found == [[]]


def test_a_closed_store_opens_again_when_used(store: Store) -> None:
    store.close()
    with store.begin() as tx:
        tx.execute(insert(BILLS).values(id=1, name="a"))
    assert names(store) == ["a"]


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://somewhere/shop", "cannot be kept in mysql"),
        ("shop.db", "not the URL of a store"),
        ("postgresql+psycopg2://somewhere/shop", "psycopg 3"),
    ],
)
def test_an_url_that_cannot_be_used_is_refused(url: str, says: str) -> None:
    with pytest.raises(StoreError, match=says):
        open_store(url)


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    for url in (
        f"sqlite:///{tmp_path}/missing/shop.db",
        f"postgresql+psycopg://postgres@/shop?host={tmp_path}",
    ):
        with pytest.raises(StoreUnavailable) as caught, open_store(url).begin():
            pass
        assert caught.value.hint
