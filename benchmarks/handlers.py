"""`headrace bench handlers`: a handler beside what a user would pick instead."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import contest, generator, machine, report
from benchmarks.asking import ROOT, BenchFailed, ask
from benchmarks.contest import OWN, ContestRow
from benchmarks.figures import Values
from benchmarks.handlers_parts import FIGURES, PARTS, Part, topics_of
from benchmarks.orders import Orders
from benchmarks.peers import Headrace, Kafka, Peer
from benchmarks.rivals.environment import NoEnvironment, python_for_pyrallel
from benchmarks.rivals.work import Load
from headrace.cli.common.version import version

NAME = "handlers"

_TABLE_COLUMNS = 170  # where standard output is not a terminal
_RIVAL_SECONDS_MAX = 600.0
_READY_SECONDS_MAX = 60.0

_PACKAGES = {
    "plain": "confluent-kafka",
    "faststream": "faststream",
    "aiokafka": "aiokafka",
    "pyrallel": "pyrallel-consumer",
}

Answer = dict[str, Any]


class HandlersBench:
    """One broker, topics full of orders, and the rivals one after the other."""

    name = NAME
    plot = ROOT / "docs" / "img" / f"bench-{NAME}.svg"

    def __init__(self) -> None:
        self._groups = 0
        self.measured: dict[str, Values] = {}
        self.answers: dict[str, list[Answer]] = {}
        self.left_out: dict[str, str] = {}

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options of the bench."""
        parser = argparse.ArgumentParser(
            prog=f"headrace bench {NAME}",
            description="Run Headrace's handlers and what a user would pick instead, one after "
            "the other, on the same topics of one broker.",
        )
        parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
        parser.add_argument("--quick", action="store_true", help="one short round")
        parser.add_argument("--rounds", type=int, help="interleaved rounds, the median counts (3)")
        names = [part.name for part in PARTS]
        parser.add_argument(
            "--only",
            action="append",
            choices=names,
            metavar="NAME",
            help=f"measure only this; may be repeated: {', '.join(names)}",
        )
        parser.add_argument(
            "--rival",
            action="append",
            choices=list(contest.RIVALS),
            help="run only this one; may be repeated",
        )
        parser.add_argument("--broker", choices=["headrace", "kafka"], default="headrace")
        parser.add_argument("--dir", type=Path, help="where the data goes (a cache folder)")
        parser.add_argument(
            "--write-docs", action="store_true", help="put the figures and the plot into docs/"
        )
        options = parser.parse_args(arguments)
        if options.rounds is None:
            options.rounds = 1 if options.quick else 3
        if options.rounds < 1:
            parser.error("--rounds begins at 1")
        if options.write_docs and (options.quick or options.only or options.rival):
            parser.error("--write-docs needs a full run: every figure of every rival")
        return options

    def run(
        self, options: argparse.Namespace, progress: Console
    ) -> tuple[list[ContestRow], Answer]:
        """Measure what the options ask for; returns the rows and the whole document."""
        parts = [part for part in PARTS if not options.only or part.name in options.only]
        rivals = options.rival or list(contest.RIVALS)
        pythons = self._pythons(rivals, progress)
        parent = options.dir or generator.CACHE / "data"
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="bench-") as temporary:
            folder = Path(temporary)
            facts = machine.facts(folder)
            peer: Peer = Headrace() if options.broker == "headrace" else Kafka()
            running = peer.start(folder / "broker")
            try:
                topics = topics_of(parts, quick=options.quick)
                for name, orders in topics.items():
                    progress.log(f"[dim]{orders.count:,} orders into {name}")
                    _when_ready(orders, running.bootstrap)
                for number in range(1, options.rounds + 1):
                    progress.log(f"round {number} of {options.rounds}")
                    for part in parts:
                        self._round(
                            part, topics[part.topic], running.bootstrap, pythons, folder, progress
                        )
            finally:
                peer.stop()
        rows = contest.rows_of(FIGURES, self.measured)
        details = {
            "versions": self._versions(pythons),
            "broker": peer.title,
            "quick": options.quick,
            "rounds": options.rounds,
            "left_out": self.left_out,
            "values": self.measured,
            "answers": self.answers,
        }
        return rows, contest.document(rows, facts, details)

    def _pythons(self, rivals: Sequence[str], progress: Console) -> dict[str, Path]:
        """Which Python runs which rival; one that cannot run is left out, and said why."""
        pythons = {rival: Path(sys.executable) for rival in rivals}
        if "pyrallel" in pythons:
            try:
                pythons["pyrallel"] = python_for_pyrallel(generator.CACHE)
            except NoEnvironment as error:
                del pythons["pyrallel"]
                self.left_out["pyrallel"] = str(error)
                progress.print(f"[yellow]left out:[/] {error}", soft_wrap=True)
        return pythons

    def _round(
        self,
        part: Part,
        orders: Orders,
        bootstrap: str,
        pythons: Mapping[str, Path],
        folder: Path,
        progress: Console,
    ) -> None:
        for rival, entry in part.entries.items():
            if rival not in pythons:
                continue
            self._groups += 1
            load = Load(
                bootstrap=bootstrap,
                topic=orders.topic,
                group=f"{part.name}-{rival}-{self._groups}",
                messages=orders.count,
                seconds_max=part.seconds_max,
                mode=entry.mode,
                work=part.work,
                statements=part.statements,
                database=str(folder / f"{part.name}-{rival}-{self._groups}.db"),
            )
            try:
                answer = ask(
                    entry.module,
                    asdict(load),
                    python=pythons[rival],
                    seconds_max=_RIVAL_SECONDS_MAX,
                )
            except BenchFailed as error:
                # The rows are about Headrace and the loop by hand; another's failure is a note.
                if rival in (OWN, contest.LIMIT):
                    raise
                self.left_out[rival] = f"it failed under {part.name}"
                progress.print(f"[yellow]{rival} failed:[/] {error}", soft_wrap=True)
                continue
            for path in folder.glob("*.db*"):
                path.unlink()
            progress.log(
                f"[dim]{part.name}, {rival}: {report.number(answer['messages_per_second'])} "
                f"messages/s, {report.number(answer['cpu_us_per_message'])} µs of CPU each"
            )
            self.answers.setdefault(f"{part.name} {rival}", []).append(answer)
            values = self.measured.setdefault(rival, {})
            for figure, value in part.values(answer, orders).items():
                values.setdefault(figure, []).append(value)

    def _versions(self, pythons: Mapping[str, Path]) -> dict[str, str]:
        """What each rival is, as its own Python knows it."""
        found = {
            rival: f"{_PACKAGES[rival]} {_version(python, _PACKAGES[rival])}"
            for rival, python in pythons.items()
            if rival in _PACKAGES
        }
        return {**found, OWN: f"Headrace {version()}"}

    def write_docs(self, rows: list[ContestRow], result: Answer, command: str) -> None:
        """Put the figures into the docs page and draw the plot beside it."""
        generated = contest.markdown(
            NAME, rows, result["machine"], result["versions"], command, self.left_out
        )
        report.write_page(NAME, generated)
        contest.plot(rows, self.plot, "Handlers beside what else there is")

    def main(self, arguments: Sequence[str]) -> int:
        """Run the bench; 0 when it could be measured, whatever the figures say."""
        options = self.parse(arguments)
        progress = Console(stderr=True, log_path=False)
        try:
            rows, result = self.run(options, progress)
        except BenchFailed as error:
            progress.print(f"[red]error:[/] {error}", soft_wrap=True)
            return 1
        shown = contest.table(rows, f"Handlers on {result['broker']}")
        report.show(result, shown, options.output, _TABLE_COLUMNS)
        if options.write_docs:
            self.write_docs(rows, result, " ".join([f"./headrace bench {NAME}", *arguments]))
        return 0


def _version(python: Path, package: str) -> str:
    ask = f"from importlib.metadata import version; print(version('{package}'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _when_ready(orders: Orders, bootstrap: str) -> None:
    """Fill a topic; the first one also waits for the broker to answer."""
    deadline_s = time.monotonic() + _READY_SECONDS_MAX
    while True:
        try:
            orders.fill(bootstrap)
            return
        except Exception:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.2)


BENCH = HandlersBench()
