"""Jobs and answers as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.dispatch.jobs import (
    decode_answer,
    encode_answer,
    encode_job,
)


@dataclass
class Job:
    n: int


@pytest.mark.parametrize("answer", [None, b"\xff", "text", 7, [1, "a"], {"a": None}])
def test_answers_without_a_type_come_back_as_they_were(answer: Any) -> None:
    assert decode_answer(*encode_answer(answer), None) == answer


def test_jobs_are_bytes_on_the_way() -> None:
    assert [encode_job(job) for job in (b"\0", "é", Job(1), 0)] == [
        b"\0",
        "é".encode(),
        b'{"n":1}',
        b"0",
    ]
