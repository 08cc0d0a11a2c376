"""What members of groups must find beyond sharing a topic, in the vocabulary of `cases.py`."""

from __future__ import annotations

from tests.interop.cases import (
    GROUP_PARTITIONS,
    Case,
    Observed,
    Task,
    Topic,
    each_assigned_once,
    equals,
)

_SEEDED = Topic(partitions=GROUP_PARTITIONS, seeded=10)


def _cooperative(observed: Observed, task: Task) -> None:
    each_assigned_once(observed["two"], members=2)
    each_assigned_once(observed["three"], members=3)
    for before, after, revoked in zip(
        observed["two"], observed["three"], observed["revoked"], strict=False
    ):
        assert set(revoked) == set(before) - set(after), "more was taken away than had to move"


def _static(observed: Observed, task: Task) -> None:
    each_assigned_once(observed["before"], members=2)
    assert observed["after"] == observed["before"]
    assert observed["rebalances"] == 0


GROUP_CASES: tuple[Case, ...] = (
    # Two members share the topic, then a third one comes; what the first two lost meanwhile.
    Case("cooperative", _cooperative, _SEEDED),
    # Of two members with instance ids the second goes and comes back; how often the first one
    # lost its partitions meanwhile.
    Case("static", _static, _SEEDED),
    # Two members with one instance id: the older one is told so.
    Case("static-fenced", equals({"fenced": True}), Topic(seeded=1)),
    # All topics that begin with the name of this one.
    Case("regex", equals({"values": ["0-0", "0-1", "0-2"]}), Topic(seeded=3)),
    # The same, then "later" is sent to a new topic, the output of this one.
    Case("regex-new-topic", equals({"values": ["0-0", "0-1", "0-2", "later"]}), Topic(seeded=3)),
)
