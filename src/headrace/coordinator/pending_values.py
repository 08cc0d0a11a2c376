"""Values written in transactions, pending until the transaction's outcome is known."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class PendingValues(Generic[K, V]):
    """The last value per key and open transaction, in the order of the log.

    A key may be written inside and outside of several transactions; the value written last wins,
    in whatever order the transactions end, because compaction would keep that one.
    """

    __slots__ = ("_by_producer", "_order")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[K, tuple[int, V]]] = {}
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __contains__(self, key: K) -> bool:
        return any(key in values for values in self._by_producer.values())

    def __iter__(self) -> Iterator[K]:
        for values in self._by_producer.values():
            yield from values

    def held(self) -> Iterator[tuple[int, K, V]]:
        """Every pending value, with its producer, in the order of the log."""
        found = [
            (order, producer_id, key, value)
            for producer_id, values in self._by_producer.items()
            for key, (order, value) in values.items()
        ]
        for _, producer_id, key, value in sorted(found, key=lambda entry: entry[0]):
            yield producer_id, key, value

    def put(self, producer_id: int, key: K, value: V) -> None:
        """Add a value that is pending until its producer's transaction ends."""
        self._order += 1
        self._by_producer.setdefault(producer_id, {})[key] = (self._order, value)

    def settle(self, key: K) -> None:
        """Drop earlier pending values: the key was written outside of any transaction."""
        self._drop_before(key, self._order + 1)

    def end(self, producer_id: int, *, committed: bool) -> dict[K, V]:
        """End a transaction; returns the values that now count."""
        values = self._by_producer.pop(producer_id, {})
        if not committed:
            return {}
        for key, (order, _) in values.items():
            self._drop_before(key, order)
        return {key: value for key, (_, value) in values.items()}

    def _drop_before(self, key: K, order: int) -> None:
        for producer_id in list(self._by_producer):
            values = self._by_producer[producer_id]
            held = values.get(key)
            if held is not None and held[0] < order:
                del values[key]
                if not values:
                    del self._by_producer[producer_id]
