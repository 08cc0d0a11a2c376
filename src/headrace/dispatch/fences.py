"""Fences and tokens: which item may run on a partition, and the right to send it there."""

from __future__ import annotations

from typing import NamedTuple


class Fence(NamedTuple):
    """The owner's epoch and its next offset in the partition; fences of a partition only grow.

    Both parts come from Kafka, so a fence never goes back when the token store is emptied.
    """

    epoch: int
    next_offset: int

    def text(self) -> str:
        """As an item's header carries it."""
        return f"{self.epoch}.{self.next_offset}"

    @classmethod
    def parse(cls, text: str) -> Fence | None:
        """What a header says; None for what no node has written."""
        epoch, dot, next_offset = text.partition(".")
        if dot and _is_number(epoch) and _is_number(next_offset):
            return cls(int(epoch), int(next_offset))
        return None


class Token(NamedTuple):
    """The right to send one item to a partition while its fence is the current one."""

    partition: int
    fence: Fence


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19
