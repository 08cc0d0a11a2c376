"""Clients in other languages: small programs that do all cases and print a JSON line for each."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.interop.cases import CASES, Case, Task
from tests.interop.group_cases import GROUP_CASES
from tests.interop.stage import Stage
from tests.interop.transaction_cases import TRANSACTION_CASES

HERE = Path(__file__).parent
ALL_CASES = (*CASES, *GROUP_CASES, *TRANSACTION_CASES)

_RUN_SECONDS_MAX = 90.0
_BUILD_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a program observed, by case; `trouble` is what it said on standard error."""

    tasks: Mapping[str, Task]
    lines: Mapping[str, Mapping[str, Any]]
    trouble: str

    def check(self, case: Case) -> None:
        line = self.lines.get(case.name)
        if line is None:
            pytest.fail(f"the program ended before it came to {case.name}:\n{self.trouble}")
        if "error" in line:
            pytest.fail(f"{line['error']}\n{self.trouble}")
        case.check(line["observed"], self.tasks[case.name])


def run_program(
    stage: Stage,
    client: str,
    cases: Collection[Case],
    command: Sequence[str],
    *,
    lacks: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Report:
    """Let a program do these cases; its one argument is a file with the plan as JSON."""
    tasks = stage.prepare(client, cases, lacks)
    plan = {
        "bootstrap": stage.bootstrap,
        "seeded_at": stage.seeded_at_ms,
        "records": [record.to_json() for record in next(iter(tasks.values())).records],
        "tasks": [{"name": task.name, "topic": task.topic} for task in tasks.values()],
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(plan, file)
        file.flush()
        output, trouble = _output([*command, file.name], environment)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return Report(tasks, {line["case"]: line for line in lines}, trouble)


def need(*commands: str) -> None:
    """Skip the tests of a client whose tools this machine lacks; ./test says how to get them."""
    for command in commands:
        if shutil.which(command) is None:
            pytest.skip(f"{command} is not installed")


def build(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Run one build step, and say plainly what failed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _output(command: Sequence[str], environment: Mapping[str, str] | None) -> tuple[str, str]:
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8") as trouble,
    ):
        process = subprocess.Popen(command, stdout=output, stderr=trouble, env=environment)
        try:
            process.wait(_RUN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            trouble.write("the program was still running and has been stopped\n")
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        trouble.seek(0)
        return output.read(), trouble.read()[-4000:]
