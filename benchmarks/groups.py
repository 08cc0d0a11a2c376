"""`headrace bench groups`: rebalances, offset commits, transactions, and a coordinator's start."""

from __future__ import annotations

from benchmarks import java_tools
from benchmarks.bench import Bench
from benchmarks.figures import (
    CPU_REQ,
    MEMORY,
    MEMORY_PSS,
    REQ_S,
    Figure,
    Load,
    bounded,
    cost,
    rate,
)
from benchmarks.generator import Generator
from benchmarks.peers import Running
from benchmarks.trial import Trial

_ONE = {"connections": 1, "groups": 1}
_MANY = {"connections": 16, "groups": 16}
# The commits in the log of a coordinator that starts: ten partitions each, of 16 groups.
_RECOVERED_COMMITS = 1_000_000
_RECOVERED = {"topic": "recovered", "partitions": 10, "groups": 16}


def _commits(name: str, title: str, partitions: int, flags: dict[str, int]) -> Load:
    return Load(
        name,
        "commit",
        flags,
        {
            REQ_S: rate(name, title, "commits/s", 2.0),
            "p99": cost(f"{name}-p99", "  p99", "ms"),
            CPU_REQ: cost(f"{name}-cpu", "  broker CPU per commit", "µs"),
        },
        partitions=partitions,
    )


def _transactions(name: str, title: str, flow: int) -> Load:
    return Load(
        name,
        "transact",
        {"flow": flow, "records": 10},
        {
            REQ_S: rate(name, title, "txn/s", 1.5),
            "p99": cost(f"{name}-p99", "  p99", "ms"),
            CPU_REQ: cost(f"{name}-cpu", "  broker CPU per transaction", "µs"),
        },
        partitions=1,
    )


LOADS = (
    Load(
        "rebalance",
        "rebalance",
        {"members": 50},
        {
            "join_p50_ms": cost("rebalance-join", "rebalance of 50 members, one joins", "ms", 0.5),
            "leave_p50_ms": cost("rebalance-leave", "  one leaves", "ms", 0.5),
            CPU_REQ: cost("rebalance-cpu", "  broker CPU per rebalance", "µs"),
            "formation_seconds": cost("rebalance-first", "  the group's first one", "s"),
        },
        partitions=100,
    ),
    _commits("commit-1x1", "offset commits, 1 connection", 1, _ONE),
    _commits("commit-1x50", "offset commits of 50 partitions, 1 connection", 50, _ONE),
    _commits("commit-16x1", "offset commits, 16 groups", 1, _MANY),
    _commits("commit-16x50", "offset commits of 50 partitions, 16 groups", 50, _MANY),
    _transactions("transactions", "transactions of 10 records, one after the other", 2),
    _transactions("transactions-v1", "transactions of 10 records, older clients", 1),
)

JAVA = rate("java-transactions", "Java producer, transactions of 10 records", "txn/s")
JAVA_P99 = cost("java-transactions-p99", "  p99", "ms")
RECOVERY = bounded("recovery", "start to answer, 1 M commits in the log", "s", 5.0)
RECOVERY_KILLED = bounded("recovery-killed", "  after kill -9", "s", 5.0)

FIGURES: tuple[Figure, ...] = (
    *(figure for load in LOADS for figure in load.figures.values()),
    MEMORY,
    MEMORY_PSS,
    RECOVERY,
    RECOVERY_KILLED,
    JAVA,
    JAVA_P99,
)


class GroupsTrial(Trial):
    """Measures what a broker does as a coordinator."""

    def round(self) -> None:
        loads = [load for load in LOADS if load.name in self.parts]
        if loads or "java" in self.parts:
            self.fresh(lambda: self._loads(loads))
        if "recovery" in self.parts:
            self.fresh(self._recover)

    def _loads(self, loads: list[Load]) -> None:
        running, generator, _ = self.start()
        self.run_loads(running, generator, loads)
        if "java" in self.parts:
            self.say("Java producer")
            self._java(running, generator)

    def _java(self, running: Running, generator: Generator) -> None:
        topic = "bench-java"
        generator.run("create", topic=topic, partitions=1)
        done = java_tools.transact(running.bootstrap, topic, self.sizes.java_seconds)
        self.answers.setdefault("java", []).append(done)
        self.record(JAVA, done["transactions_per_second"])
        self.record(JAVA_P99, done["p99_ms"])

    def _recover(self) -> None:
        self.say("recovery")
        _, generator, _ = self.start()
        generator.run("create", topic=_RECOVERED["topic"], partitions=_RECOVERED["partitions"])
        commits = _RECOVERED_COMMITS
        generator.run(
            "commit", **_RECOVERED, connections=16, in_flight=5, commits_max=commits, seconds=600
        )
        self.peer.stop()
        self.record(RECOVERY, self.start("committed", **_RECOVERED, commits=commits)[2])
        self.peer.stop(kill=True)
        self.record(RECOVERY_KILLED, self.start("committed", **_RECOVERED, commits=commits)[2])


BENCH = Bench(
    name="groups",
    figures=FIGURES,
    parts=(*(load.name for load in LOADS), "recovery", "java"),
    trial=GroupsTrial,
)
