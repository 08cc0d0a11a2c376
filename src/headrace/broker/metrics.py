"""Counters and histograms, cheap enough for every request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

# Bucket i of a histogram counts values in [2**(i-1), 2**i): 40 of them reach 9 minutes in ns.
BUCKETS = 40


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Family:
    """Counters of one name, one for each value of a label."""

    __slots__ = ("_counters", "label")

    def __init__(self, label: str) -> None:
        self.label = label
        self._counters: dict[str, Counter] = {}

    def of(self, value: str) -> Counter:
        """The counter of one value."""
        counter = self._counters.get(value)
        if counter is None:
            counter = self._counters[value] = Counter()
        return counter

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Every value that was counted, with its count."""
        for value, counter in sorted(self._counters.items()):
            yield value, counter.value


class Gauge:
    """A number that goes up and down."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """Counts of values by powers of two: one integer operation for each value."""

    __slots__ = ("buckets", "total")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total = 0

    def record(self, value: int) -> None:
        bucket = value.bit_length()
        self.buckets[bucket if bucket < BUCKETS else BUCKETS - 1] += 1
        self.total += value

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def quantile(self, q: float) -> int:
        """An upper bound of the q-quantile: the top of the bucket that holds it."""
        rank = q * self.count
        seen = 0
        for bucket, number in enumerate(self.buckets):
            seen += number
            if number and seen >= rank:
                return (1 << bucket) - 1
        return 0


class Sample(NamedTuple):
    """One metric as a reader sees it."""

    name: str
    labels: dict[str, str]
    value: int | Histogram


class Metrics:
    """Every counter, gauge and histogram of one node."""

    def __init__(self) -> None:
        self.bytes_in = Counter()
        self.bytes_out = Counter()
        self.connections = Gauge()
        self.connections_refused = Counter()
        self.connections_reaped = Counter()
        self.requests_malformed = Counter()
        self.records_in = Counter()
        self.sync_ns = Histogram()
        self.cold_reads = Counter()
        self.fetch_waits = Counter()
        self.cleanings = Counter()
        # Rebalances of groups, by cause.
        self.rebalances = Family("cause")
        self.transactions_committed = Counter()
        self.transactions_aborted = Counter()
        self.transactions_timed_out = Counter()
        self.transactions_fenced = Counter()
        self.transactional_ids_expired = Counter()
        self._request_ns: dict[tuple[int, int], Histogram] = {}

    def request_ns(self, api_key: int, api_version: int) -> Histogram:
        """The time from request to response of one API version, in nanoseconds."""
        return self._request_ns.setdefault((api_key, api_version), Histogram())

    def samples(self) -> Iterator[Sample]:
        """All metrics, by name."""
        for name, metric in vars(self).items():
            if isinstance(metric, Counter | Gauge):
                yield Sample(name, {}, metric.value)
            elif isinstance(metric, Histogram):
                yield Sample(name, {}, metric)
            elif isinstance(metric, Family):
                for value, number in metric:
                    yield Sample(name, {metric.label: value}, number)
        for (key, version), histogram in sorted(self._request_ns.items()):
            labels = {"api_key": str(key), "api_version": str(version)}
            yield Sample("request_ns", labels, histogram)
