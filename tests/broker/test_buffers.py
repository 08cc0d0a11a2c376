"""Receive buffers are re-used and their total is bounded."""

from __future__ import annotations

from headrace.broker.buffers import POOL_BYTES_MAX, BufferPool


def test_a_buffer_given_back_is_used_again() -> None:
    pool = BufferPool(-1)
    first = pool.take(100_000)
    assert len(first) >= 100_000
    pool.give_back(first)
    assert pool.take(100_000) is first


def test_the_pool_keeps_no_more_than_its_bound() -> None:
    pool = BufferPool(-1)
    taken = [pool.take(1 << 20) for _ in range(64)]
    for buffer in taken:
        pool.give_back(buffer)
    kept = [pool.take(1 << 20) for _ in range(64)]
    assert sum(any(k is t for t in taken) for k in kept) == POOL_BYTES_MAX >> 20


def test_exhausted_says_when_frames_hold_the_limit() -> None:
    pool = BufferPool(1 << 20)
    assert not pool.exhausted
    buffer = pool.take(1 << 20)
    assert pool.exhausted
    pool.give_back(buffer)
    assert not pool.exhausted
