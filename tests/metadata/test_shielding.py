"""Shielded work is finished when its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from headrace.metadata.shielding import shielded


def test_the_result_and_the_exception_reach_the_caller() -> None:
    async def succeed() -> int:
        return 1

    async def fail() -> int:
        raise OSError("full")

    async def scenario() -> None:
        assert await shielded(succeed()) == 1
        with pytest.raises(OSError, match="full"):
            await shielded(fail())

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_cancelled_work_goes_on_without_its_caller(
    fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        may_end, ended = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await may_end.wait()
            ended.set()
            if fails:
                raise OSError("nobody waits for this")

        caller = asyncio.create_task(shielded(work()))
        await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not ended.is_set()
        may_end.set()
        await ended.wait()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert "never retrieved" not in caplog.text
