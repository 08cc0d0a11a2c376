"""The forms of `headrace group seek --to`."""

from __future__ import annotations

import pytest

from headrace.client.admin.errors import AdminError
from headrace.client.admin.seek_target import Kind, Target, parse_target

NOW_MS = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(Kind.EARLIEST)),
        ("latest", Target(Kind.LATEST)),
        ("current", Target(Kind.CURRENT)),
        ("42", Target(Kind.OFFSET, 42)),
        ("+42", Target(Kind.SHIFT, 42)),
        ("-42", Target(Kind.SHIFT, -42)),
        ("-15m", Target(Kind.TIME, NOW_MS - 900_000)),
        ("-1h30m", Target(Kind.TIME, NOW_MS - 5_400_000)),
        ("@1500", Target(Kind.TIME, 1500)),
        ("1970-01-01T00:00:01.5Z", Target(Kind.TIME, 1500)),
        ("1970-01-02", Target(Kind.TIME, 86_400_000)),
        ("file:earliest", Target(Kind.FILE, name="earliest")),
        ("group:a:b", Target(Kind.GROUP, name="a:b")),
    ],
)
def test_a_place_is_read(text: str, target: Target) -> None:
    assert parse_target(text, NOW_MS) == target


@pytest.mark.parametrize(
    "text", ["", "start", "15m", "+15m", "--1", "1.5", "file:", "group:", "@x"]
)
def test_what_is_no_place_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(AdminError, match="is not a position") as caught:
        parse_target(text, NOW_MS)
    assert "group:NAME" in caught.value.hint
