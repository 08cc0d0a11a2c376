"""The loads of `headrace bench handlers`: topics, rivals, figures and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.figures import Figure, Target, bounded, cost, rate
from benchmarks.orders import Orders

MEGABYTE = 1e6
PER_SECOND = "messages/s"
# After this share of a load its memory should not grow any more.
_SETTLED_SHARE = 0.2


@dataclass(frozen=True)
class Entry:
    """How a rival does a load: its program, and a word for it."""

    module: str
    mode: str = ""


@dataclass(frozen=True)
class Part:
    """One load: who does it on which topic, and the figures that come of an answer."""

    name: str
    topic: str
    entries: Mapping[str, Entry]
    figures: Mapping[Figure, Callable[[dict[str, Any], Orders], float]]
    work: str = "count"
    statements: int = 0
    seconds_max: float = 8.0

    def values(self, answer: dict[str, Any], orders: Orders) -> dict[str, float]:
        """The values of one answer by figure."""
        return {figure.name: value(answer, orders) for figure, value in self.figures.items()}


FLOW = Orders("flow", 400_000, partitions=4, keys=1_000)
SLEEPS = Orders("sleeps", 10_000, partitions=1, keys=24, work_us_max=5_000)
BACKLOG = Orders("backlog", 1_000_000, partitions=4, keys=1_000, work_us_max=1_000, hot_every=100)
_QUICK_SHARE = 8


def per_second(answer: dict[str, Any], _orders: Orders) -> float:
    return float(answer["messages_per_second"])


def cpu_us(answer: dict[str, Any], _orders: Orders) -> float:
    return float(answer["cpu_us_per_message"])


def times_ideal(answer: dict[str, Any], orders: Orders) -> float:
    return float(answer["seconds"]) / orders.ideal_s()


def memory_mb(answer: dict[str, Any], _orders: Orders) -> float:
    return float(max(answer["resident_bytes"])) / MEGABYTE


def growth_mb(answer: dict[str, Any], _orders: Orders) -> float:
    """The most above what was resident when a fifth of the load was done."""
    resident: list[float] = answer["resident_bytes"]
    settled = int(len(resident) * _SETTLED_SHARE)
    return (max(resident[settled:]) - resident[settled]) / MEGABYTE


def at_least(name: str, title: str, unit: str, limit: float) -> Figure:
    """A figure that is better when higher, with a value of its own to reach."""
    return Figure(name, title, unit, "higher", Target(limit, relative=False))


def _cpu(name: str) -> Figure:
    return cost(f"{name}-cpu", "  CPU per message", "µs")


PARTS = (
    Part(
        "flow",
        "flow",
        {
            "plain": Entry("plain"),
            "faststream": Entry("faststream_app"),
            "aiokafka": Entry("aiokafka_loop"),
            "pyrallel": Entry("pyrallel", "partition"),
            "headrace": Entry("headrace_app", "partition"),
        },
        {
            rate("flow", "at least once, no store, order by partition", PER_SECOND, 0.7): (
                per_second
            ),
            _cpu("flow"): cpu_us,
        },
    ),
    Part(
        "flow-batches",
        "flow",
        {"plain": Entry("plain", "consume"), "headrace": Entry("headrace_app", "batches")},
        {
            rate("flow-batches", "  in batches of 500", PER_SECOND): per_second,
        },
    ),
    Part(
        "flow-async",
        "flow",
        {"headrace": Entry("headrace_app", "async")},
        {rate("flow-async", "  the handler is async", PER_SECOND): per_second},
    ),
    Part(
        "lanes",
        "flow",
        {
            "pyrallel": Entry("pyrallel", "key_hash"),
            "headrace": Entry("headrace_app", "key"),
        },
        {
            at_least("lanes", "order by key, 1,000 keys on 64 lanes", PER_SECOND, 50_000): (
                per_second
            ),
            _cpu("lanes"): cpu_us,
        },
    ),
    Part(
        "inbox",
        "flow",
        {"plain": Entry("by_hand"), "headrace": Entry("headrace_app", "key")},
        {
            at_least(
                "inbox", "SQLite inbox and one insert (synchronous FULL)", PER_SECOND, 10_000
            ): (per_second),
            _cpu("inbox"): cpu_us,
        },
        work="insert",
    ),
    Part(
        "inbox-grouped",
        "flow",
        {"plain": Entry("by_hand", "grouped")},
        {rate("inbox-grouped", "  200 messages to a transaction by hand", PER_SECOND): per_second},
        work="insert",
    ),
    Part(
        "statements",
        "flow",
        {"plain": Entry("by_hand"), "headrace": Entry("headrace_app", "key")},
        {
            rate("statements", "SQLite inbox and 40 statements of the handler", PER_SECOND, 0.8): (
                per_second
            ),
            _cpu("statements"): cpu_us,
        },
        work="statements",
        statements=40,
    ),
    Part(
        "sleeps",
        "sleeps",
        {
            "plain": Entry("plain"),
            "faststream": Entry("faststream_app"),
            "pyrallel": Entry("pyrallel", "key_hash"),
            "headrace": Entry("headrace_app", "key"),
        },
        {
            bounded(
                "sleeps", "10,000 messages of 0-5 ms, 1 partition, 24 keys", "x ideal", 1.2
            ): times_ideal,
        },
        work="sleep",
        seconds_max=120.0,
    ),
    Part(
        "backlog",
        "backlog",
        {
            "plain": Entry("plain"),
            "aiokafka": Entry("aiokafka_loop"),
            "headrace": Entry("headrace_app", "key"),
        },
        {
            bounded("backlog-growth", "memory growth over a backlog of 1 M", "MB", 32.0): growth_mb,
            bounded("backlog-memory", "  resident memory, peak", "MB"): memory_mb,
        },
        work="hot",
        seconds_max=300.0,
    ),
)

FIGURES = tuple(figure for part in PARTS for figure in part.figures)


def topics_of(parts: Iterable[Part], *, quick: bool) -> dict[str, Orders]:
    """The topics that the parts need; a quick run has an eighth of the orders in the large ones."""
    wanted = {part.topic for part in parts}
    found = {}
    for orders in (FLOW, SLEEPS, BACKLOG):
        if orders.topic in wanted:
            large = quick and orders is not SLEEPS
            count = orders.count // _QUICK_SHARE if large else orders.count
            found[orders.topic] = replace(orders, count=count)
    return found
