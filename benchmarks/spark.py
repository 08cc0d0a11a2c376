"""`headrace bench spark`: source and sink beside Spark's official connector, on one broker."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import generator, machine, report
from benchmarks.asking import BenchFailed, ask
from benchmarks.peers import Headrace, Kafka, Peer
from benchmarks.rivals.spark_job import Job
from benchmarks.spark_connector import NoConnector, connector_jars
from benchmarks.spark_topics import Load
from headrace.protocol.compression import Codec

NAME = "spark"
_TABLE_COLUMNS = 150
_JOB_SECONDS_MAX = 1800.0
_QUICK_SHARE = 20
# Micro-batches of the streaming part.
_TRIGGERS = 4


@dataclass(frozen=True)
class Way:
    """One way to read or write a topic: a format and its options."""

    title: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict)


WAYS = {
    "connector": Way("connector", "kafka"),
    "connector-best": Way(
        "connector, at its best",
        "kafka",
        {
            "kafka.max.poll.records": "20000",
            "kafka.max.partition.fetch.bytes": str(4 << 20),
        },
    ),
    "headrace": Way("Headrace", "headrace"),
    "headrace-value": Way("Headrace, columns=value", "headrace", {"columns": "value"}),
}


@dataclass(frozen=True)
class Target:
    """So many times as fast as another way is to be."""

    own: str
    other: str
    least: float


@dataclass(frozen=True)
class Part:
    """One figure: what is read or written and how, and what Headrace is to reach."""

    name: str
    title: str
    loads: tuple[Load, ...]
    mode: str = "batch"
    # The first run of a process, on a machine where nothing is compiled yet; else those after it.
    is_cold: bool = False
    targets: tuple[Target, ...] = ()
    ways: tuple[str, ...] = tuple(WAYS)


SMALL, LARGE = Load("small", 10_000_000, 100), Load("large", 1_000_000, 1000)
LZ4 = Load("small-lz4", 10_000_000, 100, Codec.LZ4)
ZSTD = Load("small-zstd", 10_000_000, 100, Codec.ZSTD)
WRITTEN = Load("written", 2_000_000, 100)


def _targets(plain: float, best: float) -> tuple[Target, ...]:
    """Like with like: each as it is by itself, with the same columns, and each at its best."""
    return Target("headrace", "connector", plain), Target("headrace-value", "connector-best", best)


PARTS = (
    Part("batch", "batch, 100 B and 1 KB", (SMALL, LARGE), targets=_targets(2.0, 1.3)),
    Part("stream", "streaming, 100 B and 1 KB", (SMALL, LARGE), "stream", targets=_targets(2, 1.3)),
    Part("cold", "first query", (SMALL, LARGE), is_cold=True, targets=_targets(1.0, 1.0)),
    Part("lz4", "batch, 100 B, lz4", (LZ4,), targets=_targets(2.0, 1.3)[1:]),
    Part("zstd", "batch, 100 B, zstd", (ZSTD,), targets=_targets(2.0, 1.3)[1:]),
    Part(
        "sink", "stream into a topic, 100 B", (WRITTEN,), "sink",
        targets=(Target("headrace", "connector", 0.8),), ways=("connector", "headrace"),
    ),
)  # fmt: skip

Measured = dict[str, dict[str, list[float]]]
"""Records a second by part and way, one for each round."""


class SparkBench:
    """One broker, topics of records, and the ways to read them one after the other."""

    name = NAME

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options of the bench."""
        parser = argparse.ArgumentParser(
            prog=f"headrace bench {NAME}",
            description="Count and sum topics by Spark, local[2], and write one: by the official "
            "Kafka connector and by Headrace's source and sink, in interleaved rounds.",
        )
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        parser.add_argument("--quick", action="store_true", help="one round, a twentieth of it")
        parser.add_argument("--rounds", type=int, help="interleaved rounds, the median counts (3)")
        parser.add_argument("--only", action="append", choices=[part.name for part in PARTS])
        parser.add_argument("--way", action="append", choices=list(WAYS))
        parser.add_argument("--broker", choices=["headrace", "kafka"], default="headrace")
        parser.add_argument("--dir", type=Path, help="where the data goes (a cache folder)")
        parser.add_argument(
            "--write-docs", action="store_true", help="put the figures into docs/benchmarks.md"
        )
        options = parser.parse_args(arguments)
        if options.rounds is None:
            options.rounds = 1 if options.quick else 3
        if options.rounds < 1:
            parser.error("--rounds begins at 1")
        if options.write_docs and (options.quick or options.only or options.way):
            parser.error("--write-docs needs a full run")
        return options

    def run(self, options: argparse.Namespace, progress: Console) -> dict[str, Any]:
        """Measure what the options ask for; returns the whole document."""
        parts = [part for part in PARTS if not options.only or part.name in options.only]
        left_out: dict[str, str] = {}
        jars: list[Path] = []
        ways = options.way or list(WAYS)
        try:
            jars = connector_jars(generator.CACHE)
        except NoConnector as problem:
            left_out["connector"] = str(problem)
            ways = [way for way in ways if WAYS[way].format != "kafka"]
        parent = options.dir or generator.CACHE / "data"
        parent.mkdir(parents=True, exist_ok=True)
        measured: Measured = {}
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as temporary:
            folder = Path(temporary)
            facts = machine.facts(folder)
            peer: Peer = Headrace() if options.broker == "headrace" else Kafka()
            running = peer.start(folder / "broker")
            try:
                loads = {
                    load: _scaled(load, options.quick) for part in parts for load in part.loads
                }
                for load in loads.values():
                    if load.topic == WRITTEN.topic:
                        continue
                    progress.log(f"[dim]{load.written:,} records into {load.topic}")
                    load.fill(running.bootstrap)
                for number in range(1, options.rounds + 1):
                    progress.log(f"round {number} of {options.rounds}")
                    for part in parts:
                        for way in (way for way in ways if way in part.ways):
                            scaled = [loads[load] for load in part.loads]
                            rate = self._measure(part, way, scaled, running.bootstrap, jars)
                            progress.log(f"[dim]{part.name}, {way}: {rate / 1e6:.2f} M records/s")
                            measured.setdefault(part.name, {}).setdefault(way, []).append(rate)
            finally:
                peer.stop()
        return {
            "machine": facts,
            "broker": peer.title,
            "connector": [path.name for path in jars],
            "quick": options.quick,
            "rounds": options.rounds,
            "left_out": left_out,
            "figures": [figure(part, measured[part.name]) for part in parts],
            "records_per_second": measured,
        }

    def _measure(
        self, part: Part, way: str, loads: Sequence[Load], bootstrap: str, jars: Sequence[Path]
    ) -> float:
        records = sum(load.written for load in loads)
        options = {"kafka.bootstrap.servers": bootstrap, **WAYS[way].options}
        if part.mode != "sink":
            options["subscribe"] = ",".join(load.topic for load in loads)
            options["startingOffsets"] = "earliest"
        if part.mode == "stream":
            options["maxOffsetsPerTrigger"] = str(records // _TRIGGERS + 1)
        is_connector = WAYS[way].format == "kafka"
        job = Job(
            WAYS[way].format,
            part.mode,
            options,
            records,
            sum(load.written * load.value_bytes for load in loads),
            runs=1 if part.is_cold else 3,
            jars=[str(path) for path in jars] if is_connector else [],
        )
        if not part.is_cold:
            seconds: list[float] = ask("spark_job", asdict(job), seconds_max=_JOB_SECONDS_MAX)[
                "seconds"
            ]
            return records / min(seconds[1:])
        with tempfile.TemporaryDirectory() as nothing_compiled:
            new = {"NUMBA_CACHE_DIR": nothing_compiled}
            first: float = ask(
                "spark_job", asdict(job), environment=new, seconds_max=_JOB_SECONDS_MAX
            )["seconds"][0]
        return records / first

    def main(self, arguments: Sequence[str]) -> int:
        """Run the bench; 0 when it could be measured, whatever the figures say."""
        options = self.parse(arguments)
        progress = Console(stderr=True, log_path=False)
        try:
            result = self.run(options, progress)
        except BenchFailed as problem:
            progress.print(f"[red]error:[/] {problem}", soft_wrap=True)
            return 1
        for what, why in result["left_out"].items():
            progress.print(f"[yellow]left out:[/] {what}: {why}", soft_wrap=True)
        report.show(result, table(result), options.output, _TABLE_COLUMNS)
        if options.write_docs:
            command = " ".join([f"./headrace bench {NAME}", *arguments])
            report.write_page(NAME, markdown(result, command))
        return 0


def figure(part: Part, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A part's medians, and how Headrace stands to each of its targets."""
    medians = {way: median(values) for way, values in rates.items()}
    judged = [it for it in part.targets if it.own in medians and it.other in medians]
    ratios = [medians[it.own] / medians[it.other] for it in judged]
    reached = [ratio >= it.least for ratio, it in zip(ratios, judged, strict=True)]
    return {
        "name": part.name,
        "title": part.title,
        "records_per_second": medians,
        "ratios": ratios,
        "targets": [asdict(target) for target in part.targets],
        "reached": all(reached) if reached else None,
    }


def table(result: Mapping[str, Any]) -> Table:
    """The figures for a terminal."""
    out = Table(title=f"M records/s on {result['broker']}, local[2]", title_justify="left")
    for name in _head():
        out.add_column(name, justify="left" if name == "load" else "right", no_wrap=True)
    for row in result["figures"]:
        out.add_row(*_cells(row))
    return out


def markdown(result: Mapping[str, Any], command: str) -> str:
    """The bench's generated part of the docs page."""
    facts = result["machine"]
    lines = [
        f"Measured on {facts['date']} by `{command}` on {result['broker']}, with "
        f"{', '.join(result['connector']) or 'no connector at hand'}. M records/s.",
        "",
        f"| {' | '.join(_head())} |",
        f"|---|{'---:|' * (len(_head()) - 1)}",
        *(f"| {' | '.join(_cells(row))} |" for row in result["figures"]),
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in facts.items() if name != "date"),
    ]
    return "\n".join(lines) + "\n"


def _head() -> list[str]:
    return ["load", *(way.title for way in WAYS.values()), "ratios", "targets", "reached"]


def _cells(row: Mapping[str, Any]) -> list[str]:
    rates, ratios = row["records_per_second"], row["ratios"]
    return [
        row["title"],
        *(f"{rates[way] / 1e6:.2f}" if way in rates else "-" for way in WAYS),
        ", ".join(f"{ratio:.2f}x" for ratio in ratios) or "-",
        ", ".join(f"{target['least']:g}x" for target in row["targets"]),
        {True: "yes", False: "no", None: ""}[row["reached"]],
    ]


def _scaled(load: Load, quick: bool) -> Load:
    share = _QUICK_SHARE if quick else 1
    return Load(load.topic, load.records // share, load.value_bytes, load.codec)


BENCH = SparkBench()
