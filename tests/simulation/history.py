"""What clients asked for and were told, in virtual time: all that a checker may use.

The checker knows nothing of the broker. Everything written is unique, so whatever is read tells
which write it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from itertools import count

# A group and a partition: one committed offset.
Place = tuple[str, int]
NEVER_US = 1 << 62


class Outcome(Enum):
    """What a client knows of something that it asked for."""

    DONE = "done"
    REFUSED = "refused"  # it has not happened and never will
    UNKNOWN = "unknown"  # it may have happened, or may yet


@dataclass(eq=False)
class Share:
    """A member was told its partitions."""

    group: str
    generation: int
    # The instance of a static member, else the member's id.
    owner: str
    partitions: tuple[int, ...]
    asked_us: int
    told_us: int


@dataclass(eq=False)
class Commit:
    """An offset was committed with a mark of its own, or (None) deleted."""

    place: Place
    offset: int | None
    mark: str | None
    sent_us: int
    who: str
    generation: int = -1
    outcome: Outcome = Outcome.UNKNOWN
    answered_us: int | None = None
    # In a transaction: nobody may see it before that is.
    transaction: Transaction | None = None


@dataclass(eq=False)
class Look:
    """A committed offset was read; None if there was none."""

    place: Place
    offset: int | None
    mark: str | None
    sent_us: int
    heard_us: int
    who: str


@dataclass(eq=False)
class Sent:
    """A record was sent; outside of transactions, it counts when it is acknowledged."""

    value: str
    partition: int
    sent_us: int
    transaction: Transaction | None
    offset: int | None = None


@dataclass(eq=False)
class Transaction:
    """What one producer wanted to happen as one."""

    name: str
    transactional_id: str
    who: str
    # Whether it is a late request of this client that can do harm (before KIP-890 it can).
    records: list[Sent] = field(default_factory=list)
    # When its end was first asked for, and which.
    decided_us: int | None = None
    committed: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    answered_us: int | None = None

    @property
    def may_be_shown(self) -> bool:
        """Whether it may have been committed, as far as its producer knows."""
        return self.committed and self.outcome is not Outcome.REFUSED


@dataclass(eq=False)
class Begun:
    """A producer was told its id and epoch: all before it are fenced."""

    transactional_id: str
    producer_id: int
    epoch: int
    who: str
    asked_us: int
    told_us: int


@dataclass(eq=False)
class Accepted:
    """A request in the name of a producer was accepted."""

    transactional_id: str
    producer_id: int
    epoch: int
    who: str
    what: str
    sent_us: int
    begun: Begun


@dataclass(eq=False)
class Shown:
    """A reader of committed records was shown one."""

    value: str
    partition: int
    offset: int
    heard_us: int


@dataclass(eq=False)
class Reading:
    """What one reader saw of one partition, from its start up to where it has come."""

    who: str
    partition: int
    position: int = 0
    shown: list[Shown] = field(default_factory=list)


@dataclass(eq=False)
class History:
    """Everything that clients know of one run."""

    shares: list[Share] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    # By partition: what a fresh reader saw when everything was over.
    last: dict[int, Reading] = field(default_factory=dict)
    # What had to happen in the end and did not.
    stuck: list[str] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def number(self) -> int:
        """A number that nobody else has."""
        return next(self._numbers)
