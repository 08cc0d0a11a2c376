"""Whether a record of an earlier owner is settled: by its own job's outcome, and no older one's."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.dispatch.effects import Check
from headrace.dispatch.lookup_service import LookupService
from headrace.dispatch.records import Outcome

CHECK = Check(3, 10, "refresh", 2)
SUBMITTED_MS = 500


class OwnerService:
    """Has one record, and keeps the answers about it."""

    def __init__(self) -> None:
        self.answers: list[tuple[Check, bool]] = []

    def times_ms(self, _partition: int, _offset: int) -> tuple[int, int]:
        return 1_000, SUBMITTED_MS

    def checked(self, check: Check, is_settled: bool) -> None:
        self.answers.append((check, is_settled))


@pytest.mark.parametrize(
    ("outcome", "is_settled"),
    [
        (Outcome("refresh", "done", 0, 0, submitted_ms=SUBMITTED_MS), True),
        (Outcome("refresh", "refused", 3, 10, submitted_ms=SUBMITTED_MS), True),
        (Outcome("refresh", "refused", 3, 9, submitted_ms=SUBMITTED_MS), False),
        # An earlier job of this id; an outcome without a time may be of either.
        (Outcome("refresh", "done", 0, 0, submitted_ms=SUBMITTED_MS - 1), False),
        (Outcome("refresh", "done", 0, 0), True),
        (Outcome("another", "done", 3, 10, submitted_ms=SUBMITTED_MS), False),
    ],
)
def test_a_record_is_settled_by_an_outcome_of_its_own_job(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome, is_settled: bool
) -> None:
    owner, unused = OwnerService(), object()
    made: Any = LookupService
    lookup = made({}, "jobs", "jobs.done", "group", unused, unused, owner)
    monkeypatch.setattr(lookup, "_scan", lambda *_args: [outcome])
    lookup._settle([CHECK])
    assert owner.answers == [(CHECK, is_settled)]
