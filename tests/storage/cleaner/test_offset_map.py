"""The offset map against a dict, and at its limits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap


@contextmanager
def opened(
    memory_bytes: int, *, load_factor: float = 0.9, keys_max: int | None = None
) -> Iterator[OffsetMap]:
    offsets = OffsetMap(memory_bytes, load_factor=load_factor, keys_max=keys_max)
    try:
        yield offsets
    finally:
        offsets.close()


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62))))
def test_it_answers_as_a_dict_does(puts: list[tuple[bytes, int]]) -> None:
    with opened(SLOT_BYTES * 200) as offsets:
        model: dict[bytes, int] = {}
        for key, offset in puts:
            assert offsets.put(key, offset)
            model[key] = offset
        assert offsets.entries == len(model)
        for key in [*model, b"absent"]:
            assert offsets.get(key) == model.get(key, -1)


def test_a_full_map_refuses_new_keys_and_still_updates_known_ones() -> None:
    with opened(SLOT_BYTES * 100) as offsets:
        known = 0
        while offsets.put(b"%d" % known, known):
            known += 1
        assert offsets.full
        assert 0.8 < offsets.utilization <= 0.9
        assert offsets.get(b"%d" % known) == -1
        assert offsets.put(b"0", 1234)
        assert offsets.get(b"0") == 1234
        assert offsets.entries == known


def test_every_slot_is_reached_at_a_load_factor_of_one() -> None:
    with opened(SLOT_BYTES * 101, load_factor=1.0) as offsets:
        for number in range(100):
            assert offsets.put(b"%d" % number, number)
        assert [offsets.get(b"%d" % number) for number in range(100)] == list(range(100))
        assert offsets.get(b"absent") == -1


def test_offset_zero_is_not_an_empty_slot() -> None:
    with opened(SLOT_BYTES * 10) as offsets:
        assert offsets.put(b"", 0)
        assert offsets.get(b"") == 0


def test_a_small_log_takes_a_small_map() -> None:
    with opened(128 * 1024 * 1024, keys_max=10) as offsets:
        assert offsets.slots < 20
        for number in range(10):
            assert offsets.put(b"%d" % number, number)


def test_a_buffer_too_small_for_a_key_is_refused_with_the_settings_name() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(SLOT_BYTES)
