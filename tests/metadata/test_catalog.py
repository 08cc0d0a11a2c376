"""The catalog: what it keeps over restarts, and that memory follows the store."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from headrace.metadata import ALL_BROKERS, Catalog, CatalogError, DeletedTopic, SqliteStore, Topic
from headrace.metadata.catalog import PRODUCER_ID_BLOCK
from headrace.metadata.catalog_entries import LOG_DIRS
from headrace.metadata.store import (
    Delete,
    EntryExistsError,
    Op,
    Set,
    StoreUnavailableError,
)

NODE = 1


async def open_catalog(folder: Path) -> Catalog:
    return await Catalog.open(await SqliteStore.open(folder / "m"), "cluster-of-tests")


def with_catalog(folder: Path, scenario: Callable[[Catalog], Awaitable[None]]) -> None:
    """Run a scenario with a catalog that is opened before and closed after."""

    async def run() -> None:
        catalog = await open_catalog(folder)
        try:
            await scenario(catalog)
        finally:
            await catalog.close()

    asyncio.run(run())


def topic(name: str, partitions: int = 1, **more: object) -> Topic:
    return Topic(name, os.urandom(16), partitions, **more)  # type: ignore[arg-type]


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    orders = topic("orders", 3, config={"retention.ms": "5"})
    inner = topic("__consumer_offsets", 50, internal=True)

    async def write(catalog: Catalog) -> None:
        await catalog.create_topics([orders, inner], NODE)
        await catalog.set_broker_config("1", {"log.retention.ms": "7"})
        await catalog.set_broker_config(ALL_BROKERS, {"message.max.bytes": "9"})
        await catalog.set_broker_config(ALL_BROKERS, {"message.max.bytes": "10"})
        await catalog.set_log_dirs(1, {"/a": "id of a"})
        await catalog.set_log_dirs(1, {"/a": "id of a", "/b": "id of b"})
        await catalog.set_log_dirs(2, {"/c": "id of c"})

    async def check(catalog: Catalog) -> None:
        assert catalog.topics == {"orders": orders, "__consumer_offsets": inner}
        assert catalog.by_id(orders.id) == orders
        assert catalog.get("orders") == orders
        assert catalog.broker_configs == {
            "1": {"log.retention.ms": "7"},
            ALL_BROKERS: {"message.max.bytes": "10"},
        }
        await catalog.set_broker_config("1", {})
        assert catalog.log_dirs == {
            "1": {"/a": "id of a", "/b": "id of b"},
            "2": {"/c": "id of c"},
        }
        await catalog.set_log_dirs(2, {})
        assert catalog.cluster_id == "cluster-of-tests"

    with_catalog(tmp_path, write)
    with_catalog(tmp_path, check)


def test_the_cluster_id_is_given_once_and_the_broker_epoch_rises(tmp_path: Path) -> None:
    async def run() -> list[tuple[str, int]]:
        seen = []
        for new_id in ("first", "second", "third"):
            catalog = await Catalog.open(await SqliteStore.open(tmp_path / "m"), new_id)
            seen.append((catalog.cluster_id, catalog.broker_epoch))
            await catalog.close()
        return seen

    assert asyncio.run(run()) == [("first", 1), ("first", 2), ("first", 3)]


def test_a_store_that_is_older_than_log_dir_ids_learns_them(tmp_path: Path) -> None:
    async def make_old(catalog: Catalog) -> None:
        await catalog._store.multi([Delete(LOG_DIRS)])

    async def write(catalog: Catalog) -> None:
        assert catalog.log_dirs == {}
        await catalog.set_log_dirs(1, {"/a": "id"})

    async def check(catalog: Catalog) -> None:
        assert catalog.log_dirs == {"1": {"/a": "id"}}

    for scenario in (make_old, write, check):
        with_catalog(tmp_path, scenario)


def test_changes_of_a_topic_are_kept(tmp_path: Path) -> None:
    made = topic("t")

    async def write(catalog: Catalog) -> None:
        await catalog.create_topics([made], NODE)
        await catalog.set_partitions("t", 4, NODE)
        await catalog.set_topic_config("t", {"cleanup.policy": "compact"})
        await catalog.set_topic_config("t", {"cleanup.policy": "delete"})
        await check(catalog)

    async def check(catalog: Catalog) -> None:
        kept = catalog.topics["t"]
        assert (kept.id, kept.partitions, kept.config) == (
            made.id,
            4,
            {"cleanup.policy": "delete"},
        )
        assert catalog.by_id(made.id) is kept

    with_catalog(tmp_path, write)
    with_catalog(tmp_path, check)


def test_a_deleted_topic_is_remembered_until_its_folders_are_gone(tmp_path: Path) -> None:
    made = topic("t", 2)
    gone = DeletedTopic("t", made.id, 2)

    async def write(catalog: Catalog) -> None:
        await catalog.create_topics([made], NODE)
        assert await catalog.delete_topic("t") == gone
        assert catalog.get("t") is None
        assert catalog.by_id(made.id) is None

    async def finish(catalog: Catalog) -> None:
        assert catalog.topics == {}
        assert catalog.deleted == {made.id: gone}
        await catalog.forget_deleted([made.id, bytes(16)])

    async def check(catalog: Catalog) -> None:
        assert catalog.deleted == {}

    with_catalog(tmp_path, write)
    with_catalog(tmp_path, finish)
    with_catalog(tmp_path, check)


def test_a_name_may_be_used_again_with_another_id(tmp_path: Path) -> None:
    first, second = topic("t"), topic("t")

    async def scenario(catalog: Catalog) -> None:
        await catalog.create_topics([first], NODE)
        await catalog.delete_topic("t")
        await catalog.create_topics([second], NODE)
        assert catalog.topics_by_id == {second.id: second}
        assert list(catalog.deleted) == [first.id]

    with_catalog(tmp_path, scenario)


def test_topics_are_created_all_or_none(tmp_path: Path) -> None:
    async def scenario(catalog: Catalog) -> None:
        await catalog.create_topics([topic("there")], NODE)
        with pytest.raises(EntryExistsError):
            await catalog.create_topics([topic("new"), topic("there")], NODE)
        assert list(catalog.topics) == ["there"]

    async def check(catalog: Catalog) -> None:
        assert list(catalog.topics) == ["there"]

    with_catalog(tmp_path, scenario)
    with_catalog(tmp_path, check)


def test_producer_ids_are_never_given_twice_even_after_a_crash(tmp_path: Path) -> None:
    async def run() -> None:
        catalog = await open_catalog(tmp_path)
        count = PRODUCER_ID_BLOCK + 10
        ids = await asyncio.gather(*(catalog.next_producer_id() for _ in range(count)))
        assert sorted(ids) == list(range(count))
        # No goodbye: what is left of the block is lost.
        again = await open_catalog(tmp_path)
        assert await again.next_producer_id() == 2 * PRODUCER_ID_BLOCK
        assert await catalog.next_producer_id() == count
        await catalog.close()
        await again.close()

    asyncio.run(run())


def test_two_nodes_never_share_a_block_of_producer_ids(tmp_path: Path) -> None:
    async def run() -> None:
        one, other = await open_catalog(tmp_path), await open_catalog(tmp_path)
        seen = [
            await node.next_producer_id() for _ in range(PRODUCER_ID_BLOCK) for node in (one, other)
        ]
        assert len(set(seen)) == 2 * PRODUCER_ID_BLOCK
        await one.close()
        await other.close()

    asyncio.run(run())


class RacingStore(SqliteStore):
    """A store in which another node does something between a read and the change after it."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return await super().multi(ops)


def test_two_nodes_may_take_the_first_block_of_producer_ids_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        store = await RacingStore.open(tmp_path / "m")
        assert isinstance(store, RacingStore)
        one, other = await Catalog.open(store, "c"), await open_catalog(tmp_path)
        store.meanwhile = other.next_producer_id
        assert await one.next_producer_id() == PRODUCER_ID_BLOCK
        await one.close()
        await other.close()

    asyncio.run(run())


class SlowStore(SqliteStore):
    """A store whose changes take until they are let go."""

    gate: asyncio.Event | None = None
    waiting = 0

    async def multi(self, ops: Sequence[Op]) -> list[int]:
        if self.gate is not None:
            self.waiting += 1
            await self.gate.wait()
        return await super().multi(ops)


def test_a_cancelled_change_still_happens_and_memory_follows(tmp_path: Path) -> None:
    async def run() -> None:
        store = await SlowStore.open(tmp_path / "m")
        assert isinstance(store, SlowStore)
        catalog = await Catalog.open(store, "c")
        store.gate = asyncio.Event()
        creating = asyncio.ensure_future(catalog.create_topics([topic("t")], NODE))
        while not store.waiting:
            await asyncio.sleep(0)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        store.gate.set()
        while "t" not in catalog.topics:
            await asyncio.sleep(0)
        await catalog.close()

    asyncio.run(run())


def test_a_failed_change_leaves_memory_as_it_was(tmp_path: Path) -> None:
    async def scenario(catalog: Catalog) -> None:
        await catalog.create_topics([topic("t")], NODE)
        await catalog.close()
        for change in (
            catalog.create_topics([topic("u")], NODE),
            catalog.delete_topic("t"),
            catalog.set_partitions("t", 3, NODE),
            catalog.set_topic_config("t", {"retention.ms": "1"}),
        ):
            with pytest.raises(StoreUnavailableError):
                await change
        assert catalog.topics["t"].partitions == 1
        assert catalog.topics["t"].config == {}
        assert list(catalog.topics) == ["t"]

    with_catalog(tmp_path, scenario)


def test_a_thousand_topics_load_fast(tmp_path: Path) -> None:
    async def run() -> float:
        catalog = await open_catalog(tmp_path)
        many = [topic(f"topic-{number}", 3) for number in range(1000)]
        await catalog.create_topics(many, NODE)
        await catalog.close()
        best = 1e9
        for _ in range(3):
            begin = time.perf_counter()
            catalog = await open_catalog(tmp_path)
            best = min(best, time.perf_counter() - begin)
            assert len(catalog.topics) == 1000
            await catalog.close()
        return best

    assert asyncio.run(run()) < 0.1


@pytest.mark.parametrize(
    "op",
    [
        Set("/brokers/topics/t", b"not json"),
        Set("/brokers/topics/t", b"[]"),
        Set("/brokers/topics/t", b"{}"),
        Set("/brokers/topics/t", b'{"topic_id":"zz","partitions":{}}'),
        Delete("/config/topics/t"),
        Set("/config/topics/t", b"{}"),
        Set("/admin/delete_topics/00", b"{}"),
        Delete("/brokers/epoch"),
    ],
)
def test_a_damaged_entry_is_reported_by_its_path(tmp_path: Path, op: Op) -> None:
    async def run() -> None:
        store = await SqliteStore.open(tmp_path / "m")
        catalog = await Catalog.open(store, "c")
        gone = Topic("gone", b"\0", 1)
        await catalog.create_topics([topic("t"), gone], NODE)
        await catalog.delete_topic("gone")
        await store.multi([op])
        with pytest.raises(CatalogError, match=op.path):
            await Catalog.open(store, "c")
        await store.close()

    asyncio.run(run())
