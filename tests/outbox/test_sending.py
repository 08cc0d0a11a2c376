"""Sending from any application: over its own connection, committed with its own changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from headrace import outbox
from headrace.store import Store, open_store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    store = open_store(store_url)
    store.create()
    yield store
    store.close()


def values(store: Store) -> list[bytes | None]:
    return [row.value for row in reversed(store.outbox.latest())]


def test_over_a_connection_of_sqlalchemy(store: Store, store_url: str) -> None:
    engine = create_engine(store_url)
    with engine.begin() as connection:
        id = outbox.send(connection, "orders", {"n": 1}, key="k", confirm_by="any")
    with engine.connect() as connection:
        # It begins a transaction by itself, and this one is never committed.
        outbox.send(connection, "orders", b"2")
    engine.dispose()
    assert values(store) == [b'{"n":1}']
    found = store.outbox.find(id)
    assert found is not None
    assert (found.key, found.confirm_by) == (b"k", [])


def test_over_a_session(store: Store, store_url: str) -> None:
    engine = create_engine(store_url)
    with Session(engine) as session, session.begin():
        session.execute(text("SELECT 1"))
        outbox.send(session, "orders", b"1")
    with Session(engine) as session:
        outbox.send(session, "orders", b"2")
        session.rollback()
    scoped = scoped_session(sessionmaker(engine))
    outbox.send(scoped, "orders", b"3")
    scoped.commit()
    scoped.remove()
    engine.dispose()
    assert values(store) == [b"1", b"3"]


def test_over_a_plain_connection(store: Store, store_url: str) -> None:
    connection: Any
    if store.kind == "sqlite":
        connection = sqlite3.connect(store_url.removeprefix("sqlite:///"))
    else:
        engine = create_engine(store_url)
        raw = engine.raw_connection()
        connection = raw.dbapi_connection
        assert isinstance(connection, psycopg.Connection)
    ids = outbox.send_all(connection, "orders", [b"1", b"2"])
    connection.commit()
    outbox.send(connection, "orders", b"3")
    connection.rollback()
    connection.close()
    assert values(store) == [b"1", b"2"]
    assert [row.id for row in reversed(store.outbox.latest())] == ids
    assert outbox.send_all(connection, "orders", []) == []


def test_an_id_makes_sending_twice_the_same_as_once(store: Store, store_url: str) -> None:
    engine = create_engine(store_url)
    for value in (b"1", b"2"):
        with engine.begin() as connection:
            assert outbox.send(connection, "orders", value, id="order-1") == "order-1"
    engine.dispose()
    assert values(store) == [b"1"]


class AsyncSession:
    """As SQLAlchemy's, which needs a package that nothing else here does."""

    async def connection(self) -> None: ...


def test_an_async_session_is_told_how_to_send() -> None:
    with pytest.raises(TypeError, match=r"await session\.run_sync"):
        outbox.send(AsyncSession(), "orders", b"1")


def test_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"builtins\.str: give it SQLAlchemy"):
        outbox.send("orders", "orders", b"1")


def test_a_connection_class_of_ones_own_is_known(tmp_path: Path) -> None:
    class Traced(sqlite3.Connection):
        pass

    path = tmp_path / "shop.db"
    store = open_store(f"sqlite:///{path}")
    store.create()
    with sqlite3.connect(path, factory=Traced) as connection:
        outbox.send(connection, "orders", b"1")
    connection.close()
    assert values(store) == [b"1"]
    store.close()


def test_an_application_with_another_way_to_begin_sends_too(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    store = open_store(f"sqlite:///{path}")
    store.create()
    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def connect(raw: sqlite3.Connection, _record: object) -> None:
        raw.isolation_level = None

    @event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with engine.connect() as connection:
        outbox.send(connection, "orders", b"1")
        connection.rollback()
        outbox.send(connection, "orders", b"2")
        connection.commit()
    engine.dispose()
    assert values(store) == [b"2"]
    store.close()
