"""What a node may be configured with."""

from __future__ import annotations

import pytest

from headrace.dispatch import Limits
from headrace.dispatch.errors import DispatchError
from headrace.dispatch.options import (
    HEADERS_BYTES,
    REQUEST_BYTES_MAX,
    DispatchLimits,
    check_settings,
    job_bytes_max,
)
from headrace.dispatch.spool.frames import BODY_BYTES_MAX


def test_limits_that_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="heal_misses"):
        DispatchLimits(heal_misses=0)
    with pytest.raises(ValueError, match="three times"):
        DispatchLimits(lease_ms=500, tick_ms=250)


def test_the_public_name_of_the_limits_stays() -> None:
    assert Limits is DispatchLimits


def test_static_members_are_refused_because_their_fences_would_repeat() -> None:
    with pytest.raises(DispatchError, match="in the same generation"):
        check_settings({"group.instance.id": "one"})
    assert check_settings({"linger.ms": 5}) == {"linger.ms": 5}


@pytest.mark.parametrize(
    ("settings", "request_bytes"),
    [
        ({}, REQUEST_BYTES_MAX),
        ({"max.request.size": 5_000}, 5_000),
        ({"message.max.bytes": "6000"}, 6_000),
        ({"max.request.size": 1 << 40}, BODY_BYTES_MAX),
    ],
)
def test_a_job_leaves_room_for_its_headers(settings: dict[str, object], request_bytes: int) -> None:
    assert job_bytes_max(settings) == request_bytes - HEADERS_BYTES
