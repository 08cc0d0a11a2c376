"""What became of items, as records of TOPIC.done; pure.

The key is the item's id, the value the worker's answer, and the headers say the rest, so that any
client can read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

State = Literal["done", "failed", "refused"]
STATES: tuple[State, ...] = ("done", "failed", "refused")

STATE_HEADER = "headrace-outcome"
PLACE_HEADER = "headrace-place"
FENCE_HEADER = "headrace-fence"
NODE_HEADER = "headrace-node"
# When the job was submitted: with its id, which may be used again, it names one job.
SUBMITTED_HEADER = "headrace-submitted"
# How the answer was put into bytes: none, bytes, text or json.
ANSWER_HEADER = "headrace-answer"
ERROR_HEADER = "headrace-error"

ERROR_BYTES_MAX = 4096

Headers = list[tuple[str, bytes]]


class Outcome(NamedTuple):
    """What became of one record of the work topic."""

    id: str
    state: State
    partition: int
    offset: int
    fence: str = ""
    node: str = ""
    answer: bytes | None = None
    answer_kind: str = "none"
    # The error's class and text, of one that failed.
    error: tuple[str, str] = ("", "")
    # Of the job, 0 if it is not known.
    submitted_ms: int = 0

    def is_of(self, submitted_ms: int) -> bool:
        """Whether it is about the job of this id that was submitted then, and not an older one."""
        return self.submitted_ms in (0, submitted_ms) or not submitted_ms

    @property
    def is_final(self) -> bool:
        """Whether the item is finished by it; a refused one is submitted again."""
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


def parse(key: bytes | None, value: bytes | None, headers: Iterable[Any] | None) -> Outcome | None:
    """The outcome that a record of TOPIC.done tells, or None for a record of somebody else."""
    if key is None or not headers:
        return None
    found = {name: (text or b"").decode("utf-8", "replace") for name, text in headers}
    state = next((one for one in STATES if one == found.get(STATE_HEADER)), None)
    partition, slash, offset = found.get(PLACE_HEADER, "").partition("/")
    if state is None or not slash or not (partition.isdigit() and offset.isdigit()):
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
        whole(found.get(SUBMITTED_HEADER, "")),
    )


def whole(text: str) -> int:
    """The number that a header says, 0 for what is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
