"""Changes given one by one: set, delete, append, subtract."""

from __future__ import annotations

import pytest

from headrace.config import BROKER_ROWS, ConfigError, Settings, topic_settings
from headrace.config.changes import Change, Operation, apply_changes

SET, DELETE, APPEND, SUBTRACT = Operation


def change(own: dict[str, str], *changes: Change) -> dict[str, str]:
    broker = Settings.parse(BROKER_ROWS, {"log.cleanup.policy": "compact"})
    return apply_changes(own, topic_settings(broker, own), changes)


def test_set_and_delete_leave_other_settings_alone() -> None:
    own = {"retention.ms": "1", "segment.bytes": "2000"}
    assert change(own, Change("retention.ms", SET, "5")) == own | {"retention.ms": "5"}
    assert change(own, Change("retention.ms", DELETE)) == {"segment.bytes": "2000"}
    assert change(own, Change("flush.ms", DELETE)) == own
    assert own["retention.ms"] == "1"


def test_append_and_subtract_work_on_lists() -> None:
    own = {"cleanup.policy": "delete"}
    appended = change(own, Change("cleanup.policy", APPEND, "compact,delete,compact"))
    assert appended == {"cleanup.policy": "delete,compact"}
    assert change(appended, Change("cleanup.policy", SUBTRACT, " delete ")) == {
        "cleanup.policy": "compact"
    }
    assert change(own, Change("cleanup.policy", SUBTRACT, "compact")) == own


def test_a_list_that_is_not_set_counts_as_it_is_in_effect() -> None:
    assert change({}, Change("cleanup.policy", APPEND, "delete")) == {
        "cleanup.policy": "compact,delete"
    }


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Change("retention.ms", APPEND, "1"), "cannot append: it is a LONG"),
        (Change("retention.ms", SUBTRACT, "1"), "cannot subtract: it is a LONG"),
        (Change("retention.ms", SET, None), "null value"),
        (Change("cleanup.policy", APPEND, None), "null value"),
        (Change("cleanup.polizy", APPEND, "x"), "unknown topic setting"),
    ],
)
def test_changes_that_make_no_sense_are_refused(wrong: Change, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        change({}, wrong)
