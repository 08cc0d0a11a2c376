"""The thread that writes a spool outlives whatever the spool does."""

from __future__ import annotations

from collections.abc import Sequence

from tests.waiting import wait_until

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.port import Beat, JobDone, JobPut, SpoolChange, SpoolContents
from headrace.dispatch.spool.writer import SpoolWriter


class FakeSpool:
    """A spool that breaks as it is told."""

    node = "me"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.written: list[SpoolChange] = []

    def recover(self) -> SpoolContents:
        return SpoolContents()

    def write(self, changes: Sequence[SpoolChange]) -> None:
        if self.error is not None:
            raise self.error
        self.written += changes

    def beat(self, now_ms: int) -> Beat:
        return Beat()

    def close(self) -> None: ...


def test_an_error_that_nobody_knows_is_told_to_its_submitter_and_ends_nothing() -> None:
    spool = FakeSpool()
    writer = SpoolWriter(spool, on_beat=lambda _beat: None, now_ms=lambda: 0)
    writer.start()
    told: list[Exception | None] = []
    spool.error = TypeError("a driver's own")
    writer.note([JobDone("old")])
    writer.put([JobPut("a", b"x", 1)], told.append)
    wait_until(lambda: told)
    assert isinstance(told[0], SpoolBroken)
    spool.error = None
    writer.put([JobPut("b", b"x", 2)], told.append)
    wait_until(lambda: len(told) == 2)
    assert told[1] is None
    # What nobody waits for was kept for later.
    assert spool.written == [JobDone("old"), JobPut("b", b"x", 2)]
    writer.stop()
