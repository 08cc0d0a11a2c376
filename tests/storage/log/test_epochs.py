"""The leader epoch cache."""

from __future__ import annotations

from pathlib import Path

from headrace.storage import OsFileSystem
from headrace.storage.log.epochs import OFFSET_MAX, EpochCache


def cache() -> EpochCache:
    return EpochCache([(0, 0), (2, 10), (5, 30)])


def test_end_of_an_epoch_is_the_start_of_the_next() -> None:
    epochs = cache()
    assert epochs.end_offset_for(0, 99) == (0, 10)
    assert epochs.end_offset_for(1, 99) == (0, 10)
    assert epochs.end_offset_for(2, 99) == (2, 30)
    assert epochs.end_offset_for(4, 99) == (2, 30)
    assert epochs.end_offset_for(5, 99) == (5, 99)
    assert epochs.end_offset_for(6, 99) == (-1, -1)
    assert epochs.end_offset_for(-1, 99) == (-1, -1)
    assert EpochCache([]).end_offset_for(0, 99) == (-1, -1)


def test_epoch_before_all_known_ended_where_the_first_begins() -> None:
    assert EpochCache([(3, 7)]).end_offset_for(1, 99) == (1, 7)


def test_epoch_of_an_offset() -> None:
    epochs = cache()
    assert [epochs.epoch_for(offset) for offset in (0, 9, 10, 29, 30, 500)] == [0, 0, 2, 2, 5, 5]
    assert EpochCache([(3, 7)]).epoch_for(6) == -1
    spans = [epochs.span_at(offset) for offset in (0, 9, 10, 30)]
    assert spans == [(0, 10), (0, 10), (2, 30), (5, OFFSET_MAX)]
    assert EpochCache([(3, 7)]).span_at(6) == (-1, 7)
    assert EpochCache([]).span_at(6) == (-1, OFFSET_MAX)


def test_new_epochs_are_added_and_known_ones_left_alone() -> None:
    epochs = cache()
    epochs.assign(5, 40)
    epochs.assign(4, 50)
    assert not epochs.changed
    epochs.assign(7, 60)
    assert epochs.changed
    assert epochs.rows()[-1] == (7, 60)
    epochs.assign(8, 60)  # epoch 7 never wrote anything
    assert epochs.rows()[-2:] == [(5, 30), (8, 60)]


def test_truncation_forgets_epochs() -> None:
    epochs = cache()
    epochs.truncate_end(30)
    assert epochs.rows() == [(0, 0), (2, 10)]
    assert epochs.latest == 2
    epochs = cache()
    epochs.truncate_start(15)
    assert epochs.rows() == [(2, 15), (5, 30)]
    epochs.truncate_start(15)
    assert epochs.rows() == [(2, 15), (5, 30)]
    epochs.truncate_start(30)
    assert epochs.rows() == [(5, 30)]


def test_file_is_kafkas(tmp_path: Path) -> None:
    fs = OsFileSystem()
    cache().save(fs, str(tmp_path))
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_text() == "0\n3\n0 0\n2 10\n5 30\n"
    assert EpochCache.load(fs, str(tmp_path)).rows() == cache().rows()
