"""What every client with transactions must find, in the vocabulary of `cases.py`.

The transactional id of a case is the name of its topic.
"""

from __future__ import annotations

from tests.interop.cases import Case, Check, Observed, Task, Topic, equals
from tests.interop.wire import read_batches

SEEDED = 10
_INPUTS = [f"0-{number}" for number in range(SEEDED)]


def _epochs(*, bumped: bool) -> Check:
    """Three transactions: with KIP-890's second part each has an epoch of its own.

    Its marker then has the next one, so that nothing late can get in behind it.
    """

    def check(observed: Observed, task: Task) -> None:
        assert observed == {"values": ["one", "two", "three"]}
        batches = read_batches(task.bootstrap, task.topic)
        assert all(batch.is_transactional for batch in batches)
        assert [batch.is_control for batch in batches] == [False, True] * 3
        first = batches[0].producer_epoch
        steps = [0, 1, 1, 2, 2, 3] if bumped else [0] * 6
        assert [batch.producer_epoch - first for batch in batches] == steps

    return check


TRANSACTION_CASES: tuple[Case, ...] = (
    # While the transaction on partition 0 is open, a plain record comes to partition 1.
    Case(
        "commit",
        equals({"open": ["plain"], "uncommitted": ["a", "b"], "committed": ["a", "b"]}),
        Topic(partitions=2),
    ),
    # An aborted transaction, then one that is committed.
    Case(
        "abort",
        equals({"committed": ["last"], "uncommitted": ["a", "b", "last"]}),
    ),
    # A producer with an open transaction; another starts with its id, commits "new", then the
    # first tries to go on, then the second commits "last".
    Case(
        "zombie",
        equals(
            {
                "fenced": True,
                "committed": ["new", "last"],
                "uncommitted": ["zombie", "new", "last"],
            }
        ),
    ),
    # The first five inputs are copied to the output: once aborted, then committed; another
    # consumer and producer copy the rest. Offsets are as the group has them.
    Case(
        "consume-process-produce",
        equals(
            {
                "while_open": None,
                "after_abort": None,
                "after_commit": 5,
                "resumed_at": 5,
                "at_end": SEEDED,
                "outputs": _INPUTS,
            }
        ),
        Topic(seeded=SEEDED, out=True),
    ),
    Case("epoch-kept", _epochs(bumped=False)),
    Case("epoch-bumped", _epochs(bumped=True)),
)

BEFORE_KIP_890 = {"epoch-bumped": "speaks transactions as they were before KIP-890's second part"}
"""What a client lacks that keeps its epoch from transaction to transaction."""

SINCE_KIP_890 = {"epoch-kept": "has an epoch for each transaction, as KIP-890's second part wants"}
