"""The thread that writes a spool outlives whatever the spool does."""

from __future__ import annotations

from collections.abc import Sequence

from tests.waiting import wait_until

from headrace.dispatch.errors import SpoolBroken
from headrace.dispatch.spool.port import Beat, JobDone, JobPut, SpoolChange, SpoolContents
from headrace.dispatch.spool.writer import SpoolWriter


class FakeSpool:
    """A spool that fails on demand."""

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


def test_an_error_that_nobody_knows_is_results_to_its_submitter_and_ends_nothing() -> None:
    spool = FakeSpool()
    writer = SpoolWriter(spool, on_beat=lambda _beat: None, now_ms=lambda: 0)
    writer.start()
    results: list[Exception | None] = []
    spool.error = TypeError("a driver's own")
    writer.note([JobDone("old")])
    writer.put([JobPut("a", b"x", 1)], results.append)
    wait_until(lambda: results)
    assert isinstance(results[0], SpoolBroken)
    spool.error = None
    writer.put([JobPut("b", b"x", 2)], results.append)
    wait_until(lambda: len(results) == 2)
    assert results[1] is None
    # Changes that no caller waits for were kept for later.
    assert spool.written == [JobDone("old"), JobPut("b", b"x", 2)]
    writer.stop()
