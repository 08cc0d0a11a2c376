"""Sets of partitions, as an operator selects them and as they are shown: `orders:0-2,5`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Partitions by topic; None for all of them.
PartitionSelection = Mapping[str, list[int] | None]


def is_selected(topic: str, partition: int, selection: PartitionSelection) -> bool:
    """Whether a partition is among those of a selection."""
    if topic not in selection:
        return False
    partitions = selection[topic]
    return partitions is None or partition in partitions


def show_partitions(topic: str, partitions: Iterable[int]) -> str:
    """The word for some partitions of a topic."""
    spans: list[list[int]] = []
    for number in sorted(partitions):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = (f"{first}" if first == last else f"{first}-{last}" for first, last in spans)
    return f"{topic}:{','.join(shown)}"
