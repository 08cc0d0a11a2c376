"""kcat, the command line client on librdkafka that Debian carries."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

import pytest
from tests.interop.cases import (
    CASES,
    CODECS,
    GROUP_PARTITIONS,
    Case,
    Observed,
    Task,
    cases_without,
    observer,
)
from tests.interop.stage import Stage
from tests.interop.wire import read_batches

SECONDS_MAX = 60.0
NO_ADMIN = "does not administer topics"
LACKS = {
    **{f"codec-{name}": "cannot set timestamps, so has a test of its own" for name in CODECS},
    "create-delete-topic": NO_ADMIN,
    "configs": NO_ADMIN,
    "create-partitions": NO_ADMIN,
    "delete-records": NO_ADMIN,
}
LACKS_SHAPES: dict[str, str] = {}
CODEC_CASES = [case for case in CASES if case.name.startswith("codec-")]
# kcat tells its user about a refusal only in words.
REFUSALS = {
    "Broker: Message size too large": 10,
    "Broker: Broker failed to validate record": 87,
}

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


@pytest.mark.parametrize("case", cases_without(LACKS), ids=str)
def test_kcat(case: Case, stage: Stage) -> None:
    task = stage.prepare("kcat", [case])[case.name]
    case.check(observer(globals(), case)(task), task)


@pytest.mark.parametrize("case", CODEC_CASES, ids=str)
def test_keys_headers_and_nulls_come_back_with(case: Case, stage: Stage) -> None:
    task = stage.prepare("kcat", [case])[case.name]
    codec = case.name.removeprefix("codec-")
    lines = "\n".join(["key:" + "value " * 500, ":without a key", "tombstone:", "last:line"])
    produce = ["-z", codec] if codec != "none" else []
    headers = ["-H", "one=1", "-H", "two=2"]
    _kcat(task, "-P", "-t", task.topic, "-p", "0", "-K:", "-Z", *headers, *produce, stdin=lines)
    rows = _rows(task)
    assert [(row["key"], row["payload"]) for row in rows] == [
        ("key", "value " * 500),
        (None, "without a key"),
        ("tombstone", None),
        ("last", "line"),
    ]
    assert all(row["headers"] == ["one", "1", "two", "2"] for row in rows)
    codecs = {batch.codec for batch in read_batches(task.bootstrap, task.topic)}
    assert CODECS.index(codec) in codecs


def test_topics_are_listed_with_their_partitions(stage: Stage) -> None:
    group_case = next(case for case in CASES if case.name == "group")
    task = stage.prepare("kcat-list", [group_case])["group"]
    listed = json.loads(_kcat(task, "-L", "-J", "-t", task.topic))
    (topic,) = listed["topics"]
    assert topic["topic"] == task.topic
    assert [row["partition"] for row in topic["partitions"]] == list(range(GROUP_PARTITIONS))
    assert {row["leader"] for row in topic["partitions"]} <= {
        row["id"] for row in listed["brokers"]
    }


def acks(task: Task) -> Observed:
    for level in ("0", "1", "all"):
        _produce(task, f"acks {level}", "-X", f"acks={level}")
    return {"values": sorted(row["payload"] for row in _rows(task))}


def idempotent(task: Task) -> Observed:
    lines = "\n".join(str(number) for number in range(100))
    settings = ["-X", "enable.idempotence=true", "-X", "batch.num.messages=10"]
    _produce(task, lines, *settings)
    rows = _rows(task)
    assert [row["payload"] for row in rows] == [str(number) for number in range(100)]
    return {"offsets": [row["offset"] for row in rows]}


def auto_create(task: Task) -> Observed:
    _produce(task, "made by use")
    return {"values": [row["payload"] for row in _rows(task)]}


def log_append_time(task: Task) -> Observed:
    _produce(task, "now")
    (row,) = _rows(task)
    assert row["tstype"] == "logappend"
    return {"timestamp": row["ts"]}


def too_large(task: Task) -> Observed:
    return {"error": _refusal(task, "x" * 5000)}


def keyless_on_compacted(task: Task) -> Observed:
    return {"error": _refusal(task, "x")}


def seek(task: Task) -> Observed:
    end = _kcat(task, "-Q", "-t", f"{task.topic}:0:-1")
    return {
        "seek": _rows(task, "7")[0]["offset"],
        "beginning": _rows(task, "beginning")[0]["offset"],
        "end": int(end.split()[-1]),
    }


def offsets_for_times(task: Task) -> Observed:
    times = {
        "before": task.seeded_at_ms - 1,
        "exact": task.seeded_at_ms + 5000,
        "between": task.seeded_at_ms + 5001,
        "after": task.seeded_at_ms + 20_000,
    }
    found = {}
    for name, timestamp_ms in times.items():
        answer = _kcat(task, "-Q", "-t", f"{task.topic}:0:{timestamp_ms}")
        offset = int(answer.split()[-1])
        found[name] = None if offset == -1 else offset
    return found


def commit_resume(task: Task) -> Observed:
    read = ["-G", task.topic, "-X", "auto.offset.reset=earliest", "-J"]
    first = _kcat(task, *read, "-c", "5", task.topic)
    assert [json.loads(line)["offset"] for line in first.splitlines()] == list(range(5))
    second = _kcat(task, *read, "-c", "1", task.topic)
    resumed_at = json.loads(second)["offset"]
    return {"committed": resumed_at, "resumed_at": resumed_at}


def group(task: Task) -> Observed:
    with ExitStack() as stack:
        members = [stack.enter_context(_member(task)) for _ in range(3)]
        assignments = _settle(members, members)
        members[2].process.terminate()
        members[2].process.wait(SECONDS_MAX)
        after_leave = _settle(members[:2], members)
        values = sorted(set[str]().union(*(member.values() for member in members)))
    return {"assignments": assignments, "after_leave": after_leave, "values": values}


class _Member:
    """A kcat that consumes as a member of a group; what it says is what it knows."""

    def __init__(self, process: subprocess.Popen[str], output: IO[str], says: IO[str]) -> None:
        self.process = process
        self._output = output
        self._says = says

    def values(self) -> set[str]:
        self._output.seek(0)
        return set(self._output.read().split())

    def assigned(self) -> list[int]:
        self._says.seek(0)
        assigned: list[int] = []
        for line in self._says:
            if "rebalanced" in line:
                now = re.search(r"assigned: (.*)", line)
                found = re.findall(r"\[(\d+)\]", now[1]) if now else []
                assigned = [int(partition) for partition in found]
        return assigned


@contextmanager
def _member(task: Task) -> Iterator[_Member]:
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as says:
        command = ["kcat", "-b", task.bootstrap, "-u", "-f", "%s\n", "-G", task.topic]
        command += ["-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200"]
        process = subprocess.Popen([*command, task.topic], stdout=output, stderr=says, text=True)
        try:
            yield _Member(process, output, says)
        finally:
            process.kill()
            process.wait()


def _settle(members: list[_Member], readers: list[_Member]) -> list[list[int]]:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        assigned = [member.assigned() for member in members]
        seen = set[str]().union(*(reader.values() for reader in readers))
        if all(assigned) and sum(map(len, assigned)) == GROUP_PARTITIONS and len(seen) == 60:
            return assigned
        try:
            members[0].process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    raise AssertionError(f"the group did not settle: {assigned}, {len(seen)} values")


def _kcat(task: Task, *arguments: str, stdin: str = "") -> str:
    done = _run(task, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(task: Task, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kcat", "-b", task.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def _produce(task: Task, lines: str, *settings: str) -> None:
    _kcat(task, "-P", "-t", task.topic, "-p", "0", *settings, stdin=lines)


def _refusal(task: Task, line: str) -> int:
    done = _run(task, "-P", "-t", task.topic, "-p", "0", stdin=line)
    return next((code for words, code in REFUSALS.items() if words in done.stderr), 0)


def _rows(task: Task, offset: str = "beginning") -> list[dict[str, Any]]:
    output = _kcat(task, "-C", "-t", task.topic, "-p", "0", "-o", offset, "-e", "-J")
    return [json.loads(line) for line in output.splitlines()]
