"""Which log is cleaned next and how far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.storage.cleaner.logs import START_MS, Bench, end, put

from headrace.protocol.control import ControlType
from headrace.storage import Log
from headrace.storage.cleaner.options import LastRecord
from headrace.storage.cleaner.planning import (
    dirtiest,
    examine,
    last_records,
    segment_facts,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def three_segments(log: Log) -> list[int]:
    """Fill a log with two sealed segments and an active one; their base offsets."""
    for number in range(2):
        put(log, [(f"k{number}", "v" * 100)], timestamp=START_MS + number)
        log.roll(START_MS)
    put(log, [("k", "v")], timestamp=START_MS + 2)
    return [segment.base_offset for segment in log.segments]


def test_the_active_segment_is_never_cleaned(bench: Bench) -> None:
    log = bench.log()
    bases = three_segments(log)
    candidate = examine(log, None, START_MS)
    assert candidate.first_uncleanable_offset == bases[-1]
    assert [facts.base_offset for facts in segment_facts(candidate)] == bases[:-1]
    assert candidate.dirty_bytes == sum(segment.size for segment in log.segments[:-1])


def test_a_log_with_only_an_active_segment_is_not_due(bench: Bench) -> None:
    log = bench.log()
    put(log, [("a", "1")])
    candidate = examine(log, None, START_MS)
    assert not candidate.is_due
    assert segment_facts(candidate) == []


def test_the_ratio_counts_what_was_cleaned_before_as_clean(bench: Bench) -> None:
    log = bench.log()
    bases = three_segments(log)
    candidate = examine(log, bases[1], START_MS)
    first, second = (segment.size for segment in log.segments[:2])
    assert (candidate.clean_bytes, candidate.dirty_bytes) == (first, second)
    assert candidate.dirty_ratio == pytest.approx(second / (first + second))
    log.config = replace(log.config, min_cleanable_dirty_ratio=0.6)
    assert not examine(log, bases[1], START_MS).is_due
    assert examine(log, None, START_MS).is_due


def test_nothing_new_is_never_due_even_at_ratio_zero(bench: Bench) -> None:
    log = bench.log()
    bases = three_segments(log)
    log.config = replace(log.config, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    assert not examine(log, bases[-1], START_MS + 10**9).is_due


def test_the_dirtiest_log_comes_first(bench: Bench) -> None:
    clean, dirty = bench.log(0), bench.log(1)
    bases = three_segments(clean)
    three_segments(dirty)
    chosen = dirtiest([examine(clean, bases[1], START_MS), examine(dirty, None, START_MS)])
    assert chosen is not None
    assert chosen.log is dirty


def test_segments_younger_than_the_minimum_lag_wait(bench: Bench) -> None:
    log = bench.log()
    bases = three_segments(log)
    log.config = replace(log.config, min_compaction_lag_ms=1000)
    assert examine(log, None, START_MS + 999).first_uncleanable_offset == bases[0]
    assert examine(log, None, START_MS + 1000).first_uncleanable_offset == bases[1]
    assert examine(log, None, START_MS + 1001).first_uncleanable_offset == bases[2]


def test_a_log_dirty_for_longer_than_the_maximum_lag_is_due_at_any_ratio(bench: Bench) -> None:
    log = bench.log()
    three_segments(log)
    log.config = replace(log.config, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000)
    assert not examine(log, None, START_MS + 1000).is_due
    assert examine(log, None, START_MS + 1001).is_due


def test_an_open_transaction_holds_the_cleaner_back(bench: Bench) -> None:
    log = bench.log()
    put(log, [("a", "1")])
    log.roll(START_MS)
    put(log, [("b", "1")], producer_id=5, base_sequence=0, transactional=True)
    log.roll(START_MS)
    put(log, [("c", "1")])
    log.roll(START_MS)
    assert examine(log, None, START_MS).first_uncleanable_offset == 1
    end(log, 5, ControlType.COMMIT)
    assert examine(log, None, START_MS).first_uncleanable_offset == 3


def test_segments_above_the_recovery_point_wait_for_a_checkpoint(bench: Bench) -> None:
    log = bench.log()
    bases = three_segments(log)
    log.recovery_point = bases[1]
    assert examine(log, None, START_MS).first_uncleanable_offset == bases[1]


def test_a_checkpoint_outside_the_log_is_not_believed(bench: Bench) -> None:
    log = bench.log()
    three_segments(log)
    assert examine(log, 10**6, START_MS).first_dirty_offset == log.start_offset
    log.delete_records(1)
    assert examine(log, 0, START_MS).first_dirty_offset == 1


def test_the_last_trace_of_each_producer_is_known(bench: Bench) -> None:
    log = bench.log()
    put(log, [("a", "1"), ("b", "1")], producer_id=5, base_sequence=0)
    put(log, [("a", "1")], producer_id=6, base_sequence=0, transactional=True)
    end(log, 6, ControlType.ABORT)
    end(log, 7, ControlType.COMMIT)
    assert last_records(log) == {
        5: LastRecord(1, 0),
        6: LastRecord(2, 0),
        7: LastRecord(None, 0),
    }
