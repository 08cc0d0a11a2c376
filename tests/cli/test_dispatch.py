"""`headrace dispatch`: a worker until a signal, a look at the tokens, and a cure."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL, Headrace
from tests.waiting import wait_until

from headrace.dispatch import Dispatcher
from headrace.testing import BrokerThread

JOBS = """
from headrace import Dispatcher

jobs = Dispatcher("127.0.0.1:1", topic="jobs", tokens="sqlite:///tokens.db", partitions=2)
nothing = Dispatcher("127.0.0.1:1", topic="jobs")
number = 7

@jobs.worker
def work(job: str) -> str:
    print("job", job, flush=True)
    return job.upper()
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(JOBS)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_until_a_signal(
    broker: BrokerThread, shop: Path, headrace: Headrace, number: signal.Signals
) -> None:
    command = [*TOOL, "dispatch", "run", "shop:jobs", "--bootstrap", broker.bootstrap]
    command += ["--spool", "own.spool", "--metrics", "127.0.0.1:0"]
    tokens = f"sqlite:///{shop}/tokens.db"
    with ExitStack() as stack:
        process = subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True)
        # Whatever goes wrong, nobody waits for it.
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdout is not None
        first = process.stdout.readline()
        dispatcher = Dispatcher(
            broker.bootstrap,
            topic="jobs",
            partitions=2,
            tokens=tokens,
            spool=shop / "mine.spool",
            settings={"log_level": 0},
        )
        with dispatcher:
            assert dispatcher.submit_sync("tea").result(TIMEOUT_SECONDS) == "TEA"
        assert process.stdout.readline() == "job tea\n"
        words, _, url = first.strip().partition(", metrics at ")
        assert words == f"dispatching jobs on {broker.bootstrap}"
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        assert 'headrace_dispatch_done_total{topic="jobs"} 1' in text
        assert 'headrace_dispatch_partitions{topic="jobs"} 2' in text
        shown = ("dispatch", "status", "jobs", "--tokens", tokens, "-o", "json")

        def idle() -> bool:
            return bool(json.loads(headrace(*shown).stdout)["tokens"]["idle"] == 2)

        wait_until(idle)
        healed = json.loads(headrace("dispatch", "heal", "jobs", "-o", "json").stdout)
        assert healed == {"topic": "jobs", "partitions": 2}
        wait_until(idle)
        process.send_signal(number)
        assert process.wait(TIMEOUT_SECONDS) == 0
    found = json.loads(headrace(*shown).stdout)
    assert found["tokens"]["revoked"] == 2
    assert [row["partition"] for row in found["partitions"]] == [0, 1]
    table = headrace("dispatch", "status", "jobs", "--tokens", tokens).stdout.splitlines()
    assert table[0].split() == ["partition", "token", "fence", "node", "lease_ms", "backlog"]
    assert table[-1] == "tokens: 2 revoked"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop", "'shop' is not MODULE:DISPATCHER"),
        ("shap:jobs", "there is no module 'shap'"),
        ("shop:number", "'number' in module shop is not a Dispatcher"),
        ("shop:jobbs", "did you mean shop:jobs?"),
        ("shop:nothing", "shop:nothing has no worker"),
    ],
)
def test_a_target_that_is_no_dispatcher_is_named(shop: Path, target: str, words: str) -> None:
    done = subprocess.run(
        [*TOOL, "dispatch", "run", target], cwd=shop, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_topic_that_is_not_there_is_named(headrace: Headrace, tmp_path: Path) -> None:
    tokens = f"sqlite:///{tmp_path}/tokens.db"
    for verb in (("status", "nowhere", "--tokens", tokens), ("heal", "nowhere")):
        assert "there is no topic nowhere" in headrace("dispatch", *verb, fails=True).stderr


@pytest.mark.parametrize(
    ("tokens", "words"),
    [("redis://127.0.0.1:1/0", "is Redis running"), ("ftp://x", "redis://")],
)
def test_a_token_store_that_cannot_be_is_named(headrace: Headrace, tokens: str, words: str) -> None:
    headrace("topic", "create", "jobs")
    done = headrace("dispatch", "status", "jobs", "--tokens", tokens, fails=True)
    assert words in done.stderr
    assert "Traceback" not in done.stderr
