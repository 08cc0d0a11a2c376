"""Receive buffers are re-used and their total is bounded."""

from __future__ import annotations

from headrace.broker.buffers import POOL_BYTES_MAX, BufferPool


def test_a_buffer_given_back_is_used_again() -> None:
    pool = BufferPool(-1)
    first = pool.take(100_000)
    assert len(first) >= 100_000
    pool.give_back(first, 100_000)
    assert pool.take(100_000) is first


def test_the_pool_keeps_no_more_than_its_bound() -> None:
    pool = BufferPool(-1)
    taken = [pool.take(1 << 20) for _ in range(64)]
    for buffer in taken:
        pool.give_back(buffer, 1 << 20)
    kept = [pool.take(1 << 20) for _ in range(64)]
    assert sum(any(k is t for t in taken) for k in kept) == POOL_BYTES_MAX >> 20


def test_frames_under_way_are_bounded_but_one_may_always_begin() -> None:
    pool = BufferPool(1_000_000)
    assert pool.has_room(5_000_000)
    buffer = pool.take(700_000)
    assert pool.has_room(300_000)
    assert not pool.has_room(300_001)
    pool.give_back(buffer, 700_000)
    assert pool.has_room(5_000_000)
