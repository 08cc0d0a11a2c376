"""Chores over many logs leave the loop to others, and do once what once is enough for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.broker.apis.asking import Asker, with_broker

from headrace.broker.housekeeping import TURN_LOGS
from headrace.storage.dirs.checkpoints import CheckpointFolder

PARTITIONS = 10 * TURN_LOGS


async def turns_meanwhile(work: Awaitable[object]) -> int:
    """How often the loop came to others while the work was done."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.get_running_loop().create_task(count())
    await work
    counting.cancel()
    return turns


def test_a_checkpoint_of_many_logs_writes_its_files_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    write = CheckpointFolder.write

    def counted(self: CheckpointFolder, files: dict[str, dict[tuple[str, int], int]]) -> None:
        written.append(len(files))
        write(self, files)

    async def scenario(asker: Asker) -> None:
        await asker.create("t", PARTITIONS)
        for index in range(0, PARTITIONS, 7):
            await asker.produce("t", index, b"v")
        monkeypatch.setattr(CheckpointFolder, "write", counted)
        await asker.node.housekeeping.checkpoint()
        assert len(written) == 1
        assert all(log.recovery_point == log.end_offset for log in asker.node.logs)

    with_broker(tmp_path, scenario)


@pytest.mark.parametrize("chore", ["checkpoint", "retain", "delete"])
def test_a_chore_over_many_logs_lets_others_have_the_loop(tmp_path: Path, chore: str) -> None:
    async def scenario(asker: Asker) -> None:
        await asker.create("t", PARTITIONS)
        chores: dict[str, Callable[[], Awaitable[object]]] = {
            "checkpoint": asker.node.housekeeping.checkpoint,
            "retain": asker.node.housekeeping.retain,
            "delete": lambda: asker.node.topics.delete("t"),
        }
        assert await turns_meanwhile(chores[chore]()) >= PARTITIONS // TURN_LOGS - 1

    with_broker(tmp_path, scenario)
