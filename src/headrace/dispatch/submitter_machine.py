"""The submitter's side of the protocol, pure: which job is sent with which token.

A job waits for a token, is sent, or is finished. A refused job waits again, ahead of all others.
So does a job whose send failed, after a pause, even if it may have arrived: running it twice is
better than losing it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.dispatch.effects import ChangeToken, Effect, Send
from headrace.dispatch.tokens.store import Return, Token

if TYPE_CHECKING:
    from headrace.dispatch.records import OutcomeState


class SubmitterMachine:
    """The unfinished jobs of one node."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._queue: deque[str] = deque()
        # Unfinished jobs: None while a job waits, else the token it was sent with.
        self._jobs: dict[str, Token | None] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def want(self) -> int:
        """How many jobs wait for a token."""
        return self._waiting

    def submitted(self, ids: Iterable[str]) -> None:
        """Add new jobs at the end of the queue."""
        for job_id in ids:
            if job_id not in self._jobs:
                self._jobs[job_id] = None
                self._queue.append(job_id)
                self._waiting += 1

    def granted(self, tokens: Iterable[Token]) -> list[Effect]:
        """Send the oldest job with each token; return the tokens that are left over."""
        effects: list[Effect] = []
        for token in tokens:
            job_id = self._oldest()
            if job_id is None:
                self.counts["returned"] += 1
                effects.append(ChangeToken(Return(token.partition, token.fence)))
            else:
                self._jobs[job_id] = token
                self._waiting -= 1
                self.counts["sent"] += 1
                effects.append(Send(job_id, token))
        return effects

    def failed(self, token: Token, *, surely: bool) -> list[Effect]:
        """A send failed, and `again` will follow; `surely`: the record is not in the log."""
        self.counts["not sent"] += 1
        return [ChangeToken(Return(token.partition, token.fence))] if surely else []

    def again(self, job_id: str, token: Token) -> None:
        """The pause after a failed send is over: the job waits again."""
        self._wait_again(job_id, token)

    def outcome(self, job_id: str, outcome: OutcomeState, token: Token | None) -> bool:
        """Handle the outcome of a job sent with this token; returns whether it is now finished."""
        if job_id not in self._jobs:
            return False
        if outcome == "refused":
            self.counts["refused"] += 1
            self._wait_again(job_id, token)
            return False
        if self._jobs.pop(job_id) is None:
            self._waiting -= 1
        return True

    def lost(self, job_id: str) -> None:
        """The job's partition moved past it without an outcome: it waits again."""
        token = self._jobs.get(job_id)
        if token is not None:
            self.counts["lost"] += 1
            self._wait_again(job_id, token)

    def _wait_again(self, job_id: str, token: Token | None) -> None:
        # News about an earlier send of a job that was sent again since is out of date.
        if token is not None and self._jobs.get(job_id) == token:
            self._jobs[job_id] = None
            self._queue.appendleft(job_id)
            self._waiting += 1

    def _oldest(self) -> str | None:
        while self._queue:
            job_id = self._queue.popleft()
            # The queue may still hold jobs that are finished or already sent.
            if job_id in self._jobs and self._jobs[job_id] is None:
                return job_id
        return None
