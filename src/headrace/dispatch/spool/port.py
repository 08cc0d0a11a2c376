"""What the dispatcher asks of a spool, and the changes and jobs that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

SYNC_POLICIES = ("always", "interval", "never")
# How often a spool hears that its node is alive; with the policy `interval` it is synced then.
BEAT_SECONDS = 0.5

# The partition and the offset of a record in the work topic.
RecordPosition = tuple[int, int]


class JobPut(NamedTuple):
    """A job was submitted."""

    id: str
    value: bytes
    submitted_ms: int


class JobSent(NamedTuple):
    """A job is in the work topic now, and waits for its outcome."""

    id: str
    partition: int
    offset: int


class JobReturned(NamedTuple):
    """A job was refused or lost: it waits to be sent again."""

    id: str


class JobDone(NamedTuple):
    """A job has its outcome in TOPIC.done: it leaves the spool."""

    id: str


class DoneRead(NamedTuple):
    """TOPIC.done has been read up to this offset."""

    partition: int
    next_offset: int


SpoolChange = JobPut | JobSent | JobReturned | JobDone | DoneRead


@dataclass(slots=True)
class SpooledJob:
    """An unfinished job; `sent` is its position in the work topic once it was sent."""

    id: str
    value: bytes
    submitted_ms: int
    sent: RecordPosition | None = None


@dataclass(slots=True)
class SpoolContents:
    """All unfinished jobs in the order of submission, and how far TOPIC.done was read."""

    jobs: dict[str, SpooledJob] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)
    value_bytes: int = 0

    def apply(self, changes: Iterable[SpoolChange]) -> None:
        """Apply changes; a change to a job that is gone does nothing."""
        jobs = self.jobs
        for change in changes:
            if isinstance(change, JobPut):
                if change.id not in jobs:
                    jobs[change.id] = SpooledJob(change.id, change.value, change.submitted_ms)
                    self.value_bytes += len(change.value)
            elif isinstance(change, DoneRead):
                self.read[change.partition] = change.next_offset
            elif isinstance(change, JobDone):
                job = jobs.pop(change.id, None)
                if job is not None:
                    self.value_bytes -= len(job.value)
            elif (job := jobs.get(change.id)) is not None:
                job.sent = change[1:] if isinstance(change, JobSent) else None

    def changes(self) -> Iterable[SpoolChange]:
        """The shortest history that gives the same contents."""
        for job in self.jobs.values():
            yield JobPut(job.id, job.value, job.submitted_ms)
            if job.sent is not None:
                yield JobSent(job.id, *job.sent)
        for partition, next_offset in self.read.items():
            yield DoneRead(partition, next_offset)


class Beat(NamedTuple):
    """What a beat found: jobs taken over, and the ids this node kept if others took jobs of it."""

    adopted: SpoolContents | None = None
    kept: frozenset[str] | None = None


class Spool(Protocol):
    """Stores changes; used by one thread at a time."""

    # The name by which the other nodes know this one, also after a restart.
    node: str

    def recover(self) -> SpoolContents:
        """Open the spool and return what is unfinished; SpoolBroken if it cannot be opened."""
        ...

    def write(self, changes: Sequence[SpoolChange]) -> None:
        """Store changes; a put job is durable on return, as far as the sync policy asks for it."""
        ...

    def beat(self, now_ms: int) -> Beat:
        """Report that this node is alive, and take over the jobs of dead nodes."""
        ...

    def close(self) -> None:
        """Close the spool; unfinished jobs wait for the next start or go to other nodes."""
        ...


def check_sync(sync: str) -> str:
    """Return the sync policy; ValueError if it is not one."""
    if sync not in SYNC_POLICIES:
        raise ValueError(f"sync={sync!r} is not a policy; use one of {', '.join(SYNC_POLICIES)}")
    return sync
