"""What every metadata store must do, whatever is behind the port."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
from kazoo.client import KazooClient
from tests.waiting import WAIT_SECONDS
from tests.zookeeper import Forwarder, ZooKeeper

from headrace.metadata.sqlite import FILE_NAME, SqliteStore
from headrace.metadata.store import (
    DATA_BYTES_MAX,
    BadVersionError,
    Check,
    Create,
    Delete,
    EntryExistsError,
    MetadataEntry,
    MetadataStore,
    NoEntryError,
    NotEmptyError,
    Op,
    Session,
    SessionExpiredError,
    Set,
    StoreError,
    StoreUnavailableError,
)
from headrace.metadata.zookeeper import ZooKeeperSession, ZooKeeperStore

_numbers = itertools.count(1)


class Backend(Protocol):
    """How the suite reaches a kind of store: connections to one tree, and its clock."""

    # The timeout of sessions, and how long before its end an entry is sure to be there still.
    session_ms: int
    still_there_ms: int

    async def connect(self) -> MetadataStore: ...

    async def crash(self, store: MetadataStore) -> None:
        """Lose a connection without a goodbye."""
        ...

    async def pass_time(self, milliseconds: int) -> None:
        """Let the clock that sessions are counted on move."""
        ...

    async def expire(self, session: Session) -> None:
        """Have a session end while its owner lives."""
        ...

    async def renewed(self) -> None:
        """Return once every session has been renewed at the present time."""
        ...


class SqliteBackend:
    session_ms = 6_000
    still_there_ms = 1

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._now_ms = 1_000_000

    async def connect(self) -> SqliteStore:
        return await SqliteStore.open(self._path, monotonic_ms=lambda: self._now_ms, poll_ms=2)

    async def crash(self, store: MetadataStore) -> None:
        assert isinstance(store, SqliteStore)
        await store.abandon()

    async def pass_time(self, milliseconds: int) -> None:
        self._now_ms += milliseconds

    async def expire(self, session: Session) -> None:
        await self.pass_time(self.session_ms)

    async def renewed(self) -> None:
        with contextlib.closing(sqlite3.connect(self._path)) as db:
            behind = "SELECT count(*) FROM sessions WHERE deadline_ms < ? + timeout_ms"
            while db.execute(behind, (self._now_ms,)).fetchone() != (0,):
                await asyncio.sleep(0)


class ZooKeeperBackend:
    """Each connection goes through a forwarder of its own, so that it can be cut."""

    session_ms = 3_000
    still_there_ms = 2_500

    def __init__(self, server: ZooKeeper) -> None:
        self._server = server
        self._chroot = f"/contract-{next(_numbers)}"
        self._forwarders: dict[int, Forwarder] = {}

    async def connect(self) -> ZooKeeperStore:
        forwarder = Forwarder(self._server.port)
        port = await forwarder.start()
        store = await ZooKeeperStore.open(f"zookeeper://127.0.0.1:{port}{self._chroot}")
        self._forwarders[id(store)] = forwarder
        return store

    async def crash(self, store: MetadataStore) -> None:
        await self._forwarders[id(store)].cut()

    async def pass_time(self, milliseconds: int) -> None:
        await asyncio.sleep(milliseconds / 1000)

    async def expire(self, session: Session) -> None:
        """Whoever knows a session's password may take it over, and end it."""
        assert isinstance(session, ZooKeeperSession)
        other = KazooClient(self._server.address, client_id=session.client.client_id)
        await asyncio.to_thread(other.start)
        await asyncio.to_thread(other.stop)
        other.close()

    async def renewed(self) -> None:
        pass


@pytest.fixture(params=["sqlite", "zookeeper"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "sqlite":
        return SqliteBackend(tmp_path)
    return ZooKeeperBackend(request.getfixturevalue("zookeeper"))


def with_store(backend: Backend, scenario: Callable[[MetadataStore], Awaitable[None]]) -> None:
    """Run a scenario with one connection."""

    async def run() -> None:
        store = await backend.connect()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_SECONDS))


def with_two_stores(
    backend: Backend, scenario: Callable[[MetadataStore, MetadataStore], Awaitable[None]]
) -> None:
    """Run a scenario with two connections to the same tree."""

    async def run() -> None:
        one, other = await backend.connect(), await backend.connect()
        try:
            await scenario(one, other)
        finally:
            await one.close()
            await other.close()

    asyncio.run(asyncio.wait_for(run(), WAIT_SECONDS))


# -- reading and changing --------------------------------------------------------------------


def test_a_created_entry_is_read_back_at_version_0(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.multi([Create("/a", b"one")]) == [0]
        assert await store.read("/a") == MetadataEntry(b"one", 0)

    with_store(backend, scenario)


def test_an_entry_that_is_not_there_reads_as_none(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.read("/nothing") is None

    with_store(backend, scenario)


def test_the_root_is_always_there(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        assert await store.read("/") is not None
        assert await store.children("/") == []
        with pytest.raises(EntryExistsError):
            await store.multi([Create("/")])
        with pytest.raises(NotEmptyError):
            await store.multi([Delete("/")])

    with_store(backend, scenario)


def test_each_set_raises_the_version_by_one(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a")])
        assert await store.multi([Set("/a", b"x")]) == [1]
        assert await store.multi([Set("/a", b"y", 1)]) == [2]
        assert await store.read("/a") == MetadataEntry(b"y", 2)

    with_store(backend, scenario)


def test_a_set_or_delete_of_another_version_is_refused(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"x")])
        for op in (Set("/a", b"y", 3), Delete("/a", 3), Check("/a", 3)):
            with pytest.raises(BadVersionError):
                await store.multi([op])
        assert await store.read("/a") == MetadataEntry(b"x", 0)

    with_store(backend, scenario)


def test_an_entry_made_again_starts_at_version_0(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a"), Set("/a", b"x")])
        assert await store.multi([Delete("/a", 1)]) == [-1]
        assert await store.read("/a") is None
        await store.multi([Create("/a")])
        assert await store.read("/a") == MetadataEntry(b"", 0)

    with_store(backend, scenario)


@pytest.mark.parametrize("op", [Set("/a", b""), Delete("/a"), Check("/a"), Create("/a/b")])
def test_an_op_on_a_missing_entry_or_parent_is_refused(backend: Backend, op: Op) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(NoEntryError):
            await store.multi([op])

    with_store(backend, scenario)


def test_an_entry_cannot_be_created_twice(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"first")])
        with pytest.raises(EntryExistsError):
            await store.multi([Create("/a", b"second")])
        assert await store.read("/a") == MetadataEntry(b"first", 0)

    with_store(backend, scenario)


def test_an_entry_with_children_cannot_be_deleted(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a"), Create("/a/b")])
        with pytest.raises(NotEmptyError):
            await store.multi([Delete("/a")])
        await store.multi([Delete("/a/b"), Delete("/a")])
        assert await store.read("/a") is None

    with_store(backend, scenario)


def test_children_are_listed_by_name_without_grandchildren(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        paths = ["/a", "/a/z", "/a/b", "/a/b/deep", "/a-b", "/a0"]
        await store.multi([Create(path, path.encode()) for path in paths])
        assert await store.children("/a") == ["b", "z"]
        assert await store.read_children("/a") == {
            "b": MetadataEntry(b"/a/b", 0),
            "z": MetadataEntry(b"/a/z", 0),
        }
        assert await store.children("/a/z") == []
        assert await store.children("/") == ["a", "a-b", "a0"]
        for call in (store.children, store.read_children):
            with pytest.raises(NoEntryError):
                await call("/missing")

    with_store(backend, scenario)


def test_data_may_be_any_bytes(backend: Backend) -> None:
    data = bytes(range(256)) * 16

    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", data)])
        assert await store.read("/a") == MetadataEntry(data, 0)

    with_store(backend, scenario)


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a\0b"])
def test_a_path_that_is_none_is_refused(backend: Backend, path: str) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match=r"path|NUL"):
            await store.read(path)
        with pytest.raises(ValueError, match=r"path|NUL"):
            await store.multi([Create(path)])

    with_store(backend, scenario)


def test_data_up_to_the_limit_is_kept(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", bytes(DATA_BYTES_MAX))])
        assert await store.read("/a") == MetadataEntry(bytes(DATA_BYTES_MAX), 0)

    with_store(backend, scenario)


def test_data_above_the_limit_is_refused(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        with pytest.raises(ValueError, match="bytes at most"):
            await store.multi([Create("/a", bytes(DATA_BYTES_MAX + 1))])

    with_store(backend, scenario)


# -- atomic changes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "last", [Check("/a", 7), Set("/a", b"", 7), Delete("/missing"), Create("/a")]
)
def test_when_one_op_fails_none_has_happened(backend: Backend, last: Op) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"old"), Create("/gone")])
        with pytest.raises(StoreError):
            await store.multi([Create("/b"), Set("/a", b"new"), Delete("/gone"), last])
        assert await store.read("/b") is None
        assert await store.read("/a") == MetadataEntry(b"old", 0)
        assert await store.read("/gone") == MetadataEntry(b"", 0)

    with_store(backend, scenario)


def test_later_ops_see_earlier_ones(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        ops: list[Op] = [
            Create("/a"),
            Create("/a/b"),
            Set("/a/b", b"1", 0),
            Check("/a/b", 1),
            Delete("/a/b", 1),
        ]
        assert await store.multi(ops) == [0, 0, 1, 1, -1]
        assert await store.children("/a") == []

    with_store(backend, scenario)


def test_one_of_many_racing_writers_wins_each_version(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/n", b"0")])

        async def increment(store: MetadataStore) -> int:
            tries = 0
            while True:
                tries += 1
                entry = await store.read("/n")
                assert entry is not None
                data = b"%d" % (int(entry.data) + 1)
                try:
                    await store.multi([Set("/n", data, entry.version)])
                except BadVersionError:
                    continue
                return tries

        await asyncio.gather(*(increment(store) for store in (one, other) for _ in range(10)))
        assert await other.read("/n") == MetadataEntry(b"20", 20)

    with_two_stores(backend, scenario)


def test_a_change_is_there_after_reopening(backend: Backend) -> None:
    async def write(store: MetadataStore) -> None:
        await store.multi([Create("/a", b"kept"), Create("/a/b")])

    async def check(store: MetadataStore) -> None:
        assert await store.read("/a") == MetadataEntry(b"kept", 0)
        assert await store.children("/a") == ["b"]

    with_store(backend, write)
    with_store(backend, check)


def test_a_change_is_seen_at_once_by_another_connection(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/a", b"x")])
        assert await other.read("/a") == MetadataEntry(b"x", 0)

    with_two_stores(backend, scenario)


def test_a_closed_store_refuses_calls(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.close()
        with pytest.raises(StoreUnavailableError):
            await store.read("/a")

    with_store(backend, scenario)


# -- watches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        [Set("/w", b"x")],
        [Create("/w/new")],
        [Delete("/w/a")],
        [Set("/w/a/b", b"x")] * 2,
        [Create("/w/a/c"), Delete("/w/a/c")],
    ],
    ids=["set", "create below", "delete below", "set far below", "come and go"],
)
@pytest.mark.parametrize("own", [True, False], ids=["own change", "other's change"])
def test_a_watch_notices_changes_at_and_below_its_path(
    backend: Backend, own: bool, change: list[Op]
) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/w"), Create("/w/a")])
        if change[0].path.startswith("/w/a/b"):
            await one.multi([Create("/w/a/b")])
        watch = await one.watch("/w")
        await (one if own else other).multi(change)
        await watch.changed()
        watch.close()

    with_two_stores(backend, scenario)


def test_a_watch_may_wait_for_a_path_that_does_not_exist_yet(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        watch = await one.watch("/later")
        await other.multi([Create("/later")])
        await watch.changed()
        await other.multi([Delete("/later")])
        await watch.changed()

    with_two_stores(backend, scenario)


def test_a_watch_sleeps_through_changes_elsewhere(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/w"), Create("/w2")])
        watch, elsewhere = await one.watch("/w"), await one.watch("/w2")
        waiting = asyncio.ensure_future(watch.changed())
        for store in (one, other):
            await store.multi([Set("/w2", b"x"), Set("/", b"x")])
            await elsewhere.changed()
        assert not waiting.done()
        waiting.cancel()

    with_two_stores(backend, scenario)


# -- sessions --------------------------------------------------------------------------------


def test_ephemeral_entries_go_when_their_session_is_closed(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        session = await one.session(backend.session_ms)
        await one.multi([Create("/ids"), Create("/ids/1", b"me", session), Create("/stays")])
        entry = await other.read("/ids/1")
        assert entry == MetadataEntry(b"me", 0, session.id)
        watch = await other.watch("/ids")
        await session.close()
        await watch.changed()
        assert session.expired
        assert await other.children("/ids") == []
        assert await other.read("/stays") is not None

    with_two_stores(backend, scenario)


def test_ephemeral_entries_go_with_the_store_that_made_them(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/me", b"", await one.session(backend.session_ms))])
        await one.close()
        assert await other.read("/me") is None

    with_two_stores(backend, scenario)


def test_a_crashed_owners_entries_stay_until_the_deadline_and_then_go(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/me", b"", await one.session(backend.session_ms))])
        await backend.crash(one)
        await backend.pass_time(backend.session_ms - backend.still_there_ms)
        assert await other.read("/me") is not None
        watch = await other.watch("/me")
        await backend.pass_time(backend.still_there_ms)
        await watch.changed()
        assert await other.read("/me") is None

    with_two_stores(backend, scenario)


def test_an_expired_session_cannot_own_new_entries_and_learns_of_its_end(
    backend: Backend,
) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        session = await one.session(backend.session_ms)
        await backend.expire(session)
        with pytest.raises(SessionExpiredError):
            await one.multi([Create("/me", b"", session)])
        while not session.expired:
            await asyncio.sleep(0)

    with_two_stores(backend, scenario)


def test_a_live_session_is_renewed(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        # Short, so that renewals, which run on real time, come soon.
        session = await one.session(60)
        await one.multi([Create("/me", b"", session)])
        for _ in range(5):
            await backend.pass_time(59)
            entry = await other.read("/me")
            assert entry is not None
            await backend.renewed()
        assert not session.expired

    with_two_stores(backend, scenario)


def test_an_ephemeral_entry_has_no_children(backend: Backend) -> None:
    async def scenario(store: MetadataStore) -> None:
        await store.multi([Create("/me", b"", await store.session(backend.session_ms))])
        with pytest.raises(NotEmptyError):
            await store.multi([Create("/me/child")])

    with_store(backend, scenario)


def test_a_successor_may_take_the_path_after_the_owners_end(backend: Backend) -> None:
    async def scenario(one: MetadataStore, other: MetadataStore) -> None:
        await one.multi([Create("/controller", b"1", await one.session(backend.session_ms))])
        session = await other.session(backend.session_ms)
        with pytest.raises(EntryExistsError):
            await other.multi([Create("/controller", b"2", session)])
        await one.close()
        await other.multi([Create("/controller", b"2", session)])
        assert await other.read("/controller") == MetadataEntry(b"2", 0, session.id)

    with_two_stores(backend, scenario)
