"""The metadata store of a cluster of several machines: a ZooKeeper ensemble, reached by kazoo."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from headrace.metadata.sessions import RENEWALS_PER_TIMEOUT, system_monotonic_ms
from headrace.metadata.store import (
    ANY_VERSION,
    ROOT,
    BadVersionError,
    Check,
    Create,
    EntryExistsError,
    MetadataEntry,
    NoEntryError,
    NotEmptyError,
    Op,
    Session,
    SessionExpiredError,
    Set,
    StoreError,
    StoreUnavailableError,
    check_op,
    check_path,
    covers,
)
from headrace.metadata.watches import StoreWatch
from headrace.metadata.zookeeper_client import ZooKeeperClient

SCHEME = "zookeeper"
# The session of the connection that reads and watches; no entry depends on it.
CONNECTION_MS = 10_000
# How long a call may take before the store counts as away.
CALL_SECONDS = 10.0

_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (kazoo.NoNodeError, NoEntryError),
    (kazoo.NodeExistsError, EntryExistsError),
    (kazoo.BadVersionError, BadVersionError),
    (kazoo.NotEmptyError, NotEmptyError),
    (kazoo.NoChildrenForEphemeralsError, NotEmptyError),
    (kazoo.SessionMovedError, SessionExpiredError),
    (kazoo.SessionExpiredError, SessionExpiredError),
)
# What the other operations of a failed transaction report: the cause is elsewhere.
_CONSEQUENCES = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)


class ZooKeeperStore:
    """A metadata store in ZooKeeper, below a path of its own (the chroot)."""

    def __init__(self, client: ZooKeeperClient, hosts: str, chroot: str) -> None:
        self._client = client
        self._hosts = hosts
        self._chroot = chroot
        self._loop = asyncio.get_running_loop()
        self._sessions: set[ZooKeeperSession] = set()
        self._watches: set[StoreWatch] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        client.on_event = self._on_event
        client.add_listener(self._on_state)

    @classmethod
    async def open(cls, address: str, *, connect_seconds: float = CALL_SECONDS) -> ZooKeeperStore:
        """Connect to `zookeeper://HOST:PORT,HOST:PORT/CHROOT` and make the chroot if it is missing.

        Raises ValueError for another kind of address, StoreUnavailableError if no server answers.
        """
        hosts, chroot = parse_address(address)
        client = await _connect(hosts, "", CONNECTION_MS, connect_seconds)
        if chroot:
            await asyncio.to_thread(client.ensure_path, chroot)
            client.chroot = chroot
        return cls(client, hosts, chroot)

    async def read(self, path: str) -> MetadataEntry | None:
        check_path(path)
        self._catch_up()
        return await self._read(path)

    async def children(self, path: str) -> list[str]:
        check_path(path)
        self._catch_up()
        return sorted(await self._call(self._client.get_children_async, path))

    async def read_children(self, path: str) -> dict[str, MetadataEntry]:
        names = await self.children(path)
        above = "" if path == ROOT else path
        entries = await asyncio.gather(*(self._read(f"{above}/{name}") for name in names))
        # One that was deleted meanwhile is not there any more.
        return {name: entry for name, entry in zip(names, entries, strict=True) if entry}

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        for op in ops:
            check_op(op)
            _refuse_root(op)
        transaction = self._client_for(ops).transaction()
        for op in ops:
            if isinstance(op, Create):
                transaction.create(op.path, op.data, ephemeral=op.session is not None)
            elif isinstance(op, Set):
                transaction.set_data(op.path, op.data, op.version)
            elif isinstance(op, Check):
                transaction.check(op.path, op.version)
            else:
                transaction.delete(op.path, op.version)
        results = await self._call(transaction.commit_async)
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, _CONSEQUENCES):
                raise _translate(result, op.path)
        return [_version(op, result) for op, result in zip(ops, results, strict=True)]

    async def watch(self, prefix: str) -> StoreWatch:
        check_path(prefix)
        watch = StoreWatch(prefix, self._watches)
        await self._call(self._client.watch_below_async, prefix)
        self._watches.add(watch)
        return watch

    async def session(self, timeout_ms: int) -> ZooKeeperSession:
        self._check_open()
        client = await _connect(self._hosts, self._chroot, timeout_ms, CALL_SECONDS)
        session = ZooKeeperSession(client, self._sessions.discard)
        self._sessions.add(session)
        self._spawn(session.renew_on())
        return session

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(
            *(session.close() for session in list(self._sessions)), _stop(self._client)
        )

    async def _read(self, path: str) -> MetadataEntry | None:
        try:
            return _entry(*await self._call(self._client.get_async, path))
        except NoEntryError:
            return None

    def _catch_up(self) -> None:
        """Have the server hear from the leader before it answers what is asked next.

        Requests of a connection are answered in order, so nobody waits for this one.
        """
        self._check_open()
        self._client.sync_async(ROOT)

    def _client_for(self, ops: Sequence[Op]) -> ZooKeeperClient:
        """The connection whose session owns the ephemeral entries, or the store's own."""
        owners: set[Session] = {
            op.session for op in ops if isinstance(op, Create) and op.session is not None
        }
        if not owners:
            return self._client
        if len(owners) > 1:
            raise ValueError("entries of two sessions cannot be made in one step")
        (owner,) = owners
        assert isinstance(owner, ZooKeeperSession)
        if owner.expired:
            raise SessionExpiredError(f"session {owner.id:#x} has expired")
        return owner.client

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError("the metadata store is closed")

    async def _call(self, ask: Callable[..., Any], *args: Any) -> Any:
        self._check_open()
        return await call(ask, *args)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_event(self, path: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, path)

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._reconnected)

    def _wake(self, path: str) -> None:
        for watch in self._watches:
            if covers(watch.prefix, path):
                watch.wake()

    def _reconnected(self) -> None:
        if not self._closed:
            self._spawn(self._watch_again())

    async def _watch_again(self) -> None:
        """A server forgets watches with the connection; what changed meanwhile was not reported."""
        for watch in list(self._watches):
            # If the connection is lost again, so is this turn; the next one comes with the next.
            with contextlib.suppress(StoreError):
                await self._call(self._client.watch_below_async, watch.prefix)
            watch.wake()


class ZooKeeperSession:
    """A session of its own connection, and until when it is sure to live.

    ZooKeeper counts from the last request that it received, so a session lives at least one timeout
    from the moment its last answered request was sent. After that it counts as expired here, even
    if the servers still keep it: they could give its entries away at any moment.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        on_end: Callable[[ZooKeeperSession], None],
        monotonic_ms: Callable[[], int] = system_monotonic_ms,
    ) -> None:
        self.client = client
        self.id: int = client.client_id[0]
        self._on_end = on_end
        self._monotonic_ms = monotonic_ms
        self._ended = False
        self._deadline_ms = monotonic_ms() + client.negotiated_ms
        client.add_listener(self._on_state)

    @property
    def expired(self) -> bool:
        if self._monotonic_ms() >= self._deadline_ms:
            self._ended = True
        return self._ended

    async def renew_on(self) -> None:
        """Renew the session until it ends."""
        every_s = self.client.negotiated_ms / RENEWALS_PER_TIMEOUT / 1000
        while not self.expired:
            sent_ms = self._monotonic_ms()
            with contextlib.suppress(StoreError):
                await call(self.client.exists_async, ROOT)
                self._deadline_ms = sent_ms + self.client.negotiated_ms
            await asyncio.sleep(every_s)
        self._on_end(self)
        await _stop(self.client)

    async def close(self) -> None:
        """End the session now and remove its entries."""
        self._ended = True
        self._on_end(self)
        await _stop(self.client)

    def _on_state(self, state: str) -> None:
        if state == KazooState.LOST:
            self._ended = True


def parse_address(address: str) -> tuple[str, str]:
    """The hosts and the chroot ("" for none) of `zookeeper://HOST:PORT,…/CHROOT`; ValueError."""
    parts = urlsplit(address)
    if parts.scheme != SCHEME or not parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"{address!r} is not an address of ZooKeeper; write zookeeper://HOST:PORT,HOST:PORT/PATH"
        )
    chroot = parts.path.rstrip("/")
    if chroot:
        check_path(chroot)
    return parts.netloc, chroot


async def call(ask: Callable[..., Any], *args: Any) -> Any:
    """Wait for a call of kazoo; what goes wrong becomes an error of the store.

    On cancel the call may or may not have happened.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()

    def answered(result: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(_settle, answer, result)

    ask(*args).rawlink(answered)
    try:
        return await asyncio.wait_for(answer, CALL_SECONDS)
    except TimeoutError:
        raise StoreUnavailableError(f"ZooKeeper has not answered for {CALL_SECONDS:g} s") from None
    except kazoo.KazooException as error:
        raise _translate(error, str(args[0]) if args else "") from error


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    if answer.done():
        return
    if result.exception is not None:
        answer.set_exception(result.exception)
    else:
        answer.set_result(result.value)


async def _connect(
    hosts: str, chroot: str, timeout_ms: int, connect_seconds: float
) -> ZooKeeperClient:
    client = ZooKeeperClient(hosts, timeout_ms)
    try:
        await asyncio.to_thread(client.start, connect_seconds)
    except KazooTimeoutError:
        client.close()
        raise StoreUnavailableError(
            f"no ZooKeeper answers at {hosts} within {connect_seconds:g} s"
        ) from None
    client.chroot = chroot
    return client


async def _stop(client: ZooKeeperClient) -> None:
    """End a connection and its session."""

    def stop() -> None:
        # Servers that are away learn of it by the session's end.
        with contextlib.suppress(Exception):
            client.stop()
            client.close()

    await asyncio.to_thread(stop)


def _entry(data: bytes, stat: Any) -> MetadataEntry:
    return MetadataEntry(data, stat.version, stat.ephemeralOwner or None)


def _version(op: Op, result: Any) -> int:
    if isinstance(op, Create):
        return 0
    if isinstance(op, Set):
        version: int = result.version
        return version
    return op.version if isinstance(op, Check) else ANY_VERSION


def _refuse_root(op: Op) -> None:
    if op.path == ROOT and not isinstance(op, Set | Check):
        if isinstance(op, Create):
            raise EntryExistsError("the root is always there")
        raise NotEmptyError("the root cannot be deleted")


def _translate(error: Exception, path: str) -> StoreError:
    for kind, ours in _ERRORS:
        if isinstance(error, kind):
            return ours(f"{path}: {error}" if str(error) else path)
    return StoreUnavailableError(f"ZooKeeper failed: {type(error).__name__} {error}".rstrip())
