"""The records of the dispatcher's two topics; pure.

A record of the work topic is a job: its value, with the id and the fence in the headers. A record
without a value only makes the owner give the partition's token back. A record of TOPIC.done is the
outcome of a job: its key is the job's id, its value the worker's answer, and the headers say the
rest, so that any client can read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from headrace.client.dead_letters import ERROR_HEADER
from headrace.client.message import ID_HEADER

OutcomeState = Literal["done", "failed", "refused"]
OUTCOME_STATES: tuple[OutcomeState, ...] = ("done", "failed", "refused")

STATE_HEADER = "headrace-outcome"
PLACE_HEADER = "headrace-place"
FENCE_HEADER = "headrace-fence"
NODE_HEADER = "headrace-node"
# An id may be used again; with the time of submission it names one job.
SUBMITTED_HEADER = "headrace-submitted"
# How the answer is encoded: none, bytes, text or json.
ANSWER_HEADER = "headrace-answer"

ERROR_BYTES_MAX = 4096

Headers = list[tuple[str, bytes]]


class WorkHeaders(NamedTuple):
    """The headers of a job's record: the job's id, its fence as text, and when it was submitted."""

    id: str
    fence: str
    submitted_ms: int

    def headers(self) -> Headers:
        """The headers as the client sends them."""
        return [
            (ID_HEADER, self.id.encode()),
            (FENCE_HEADER, self.fence.encode()),
            (SUBMITTED_HEADER, b"%d" % self.submitted_ms),
        ]

    @classmethod
    def parse(cls, headers: Iterable[Any] | None) -> WorkHeaders:
        """Read a record's headers; missing ones are empty."""
        found = _texts(headers)
        submitted_ms = _number(found.get(SUBMITTED_HEADER, ""))
        return cls(found.get(ID_HEADER, ""), found.get(FENCE_HEADER, ""), submitted_ms)


class Outcome(NamedTuple):
    """The outcome of one record of the work topic."""

    id: str
    state: OutcomeState
    partition: int
    offset: int
    fence: str = ""
    node: str = ""
    answer: bytes | None = None
    answer_kind: str = "none"
    # The class and the text of the worker's error, if it failed.
    error: tuple[str, str] = ("", "")
    # When the job was submitted, 0 if unknown.
    submitted_ms: int = 0

    def is_of(self, submitted_ms: int) -> bool:
        """Whether it is about the job submitted at this time, and not an older one of its id."""
        return self.submitted_ms in (0, submitted_ms) or not submitted_ms

    @property
    def is_final(self) -> bool:
        """Whether the job is finished; a refused one is sent again."""
        return self.state != "refused"

    def headers(self) -> Headers:
        """The headers of its record."""
        headers = [
            (STATE_HEADER, self.state.encode()),
            (PLACE_HEADER, b"%d/%d" % (self.partition, self.offset)),
            (FENCE_HEADER, self.fence.encode()),
            (NODE_HEADER, self.node.encode()),
            (SUBMITTED_HEADER, b"%d" % self.submitted_ms),
        ]
        if self.state == "done":
            headers.append((ANSWER_HEADER, self.answer_kind.encode()))
        elif self.state == "failed":
            text = "\n".join(self.error).encode("utf-8", "replace")
            headers.append((ERROR_HEADER, text[:ERROR_BYTES_MAX]))
        return headers


def parse_outcome(
    key: bytes | None, value: bytes | None, headers: Iterable[Any] | None
) -> Outcome | None:
    """The outcome in a record of TOPIC.done; None for a record that no node has written."""
    if key is None or not headers:
        return None
    found = _texts(headers)
    state = next((one for one in OUTCOME_STATES if one == found.get(STATE_HEADER)), None)
    partition, slash, offset = found.get(PLACE_HEADER, "").partition("/")
    if state is None or not slash or not (_is_number(partition) and _is_number(offset)):
        return None
    kind, _, text = found.get(ERROR_HEADER, "").partition("\n")
    return Outcome(
        key.decode("utf-8", "replace"),
        state,
        int(partition),
        int(offset),
        found.get(FENCE_HEADER, ""),
        found.get(NODE_HEADER, ""),
        value,
        found.get(ANSWER_HEADER, "none"),
        (kind, text),
        _number(found.get(SUBMITTED_HEADER, "")),
    )


def _texts(headers: Iterable[Any] | None) -> dict[str, str]:
    return {name: (text or b"").decode("utf-8", "replace") for name, text in headers or ()}


def _number(text: str) -> int:
    """The number in a header, 0 if it is not one."""
    return int(text) if _is_number(text) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18
