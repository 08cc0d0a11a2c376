"""The progress of a run, from what Spark reports."""

from __future__ import annotations

from headrace.spark.pipelines.progress import has_reached, read_progress, seconds_left


def test_progress_knows_what_is_left() -> None:
    report = (
        '{"batchId": 3, "processedRowsPerSecond": 50.0, "numInputRows": 10, "sources": '
        '[{"endOffset": {"t": {"0": 60, "1": 150}}, "latestOffset": '
        '{"t": {"0": 100, "1": 150}, "headrace.lag": {"records": 40, "seconds": 1.5}}}]}'
    )
    ends = {("t", 0): 100, ("t", 1): 100}
    progress = read_progress(report, {("t", 0): 10, ("t", 1): 0}, ends)
    assert (progress.batch, progress.done, progress.total) == (3, 150, 190)
    assert progress.lag == {"records": 40, "seconds": 1.5}
    assert seconds_left(progress) == 0.8
    assert not has_reached(report, ends)
    assert has_reached(report, {("t", 0): 60, ("t", 1): 100, ("t", 2): 0})
    assert seconds_left(read_progress(report)) is None
