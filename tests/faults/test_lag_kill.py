"""Lag services are killed at any moment, and every change of level is told all the same.

Each is told once; once more at most for every process that was killed.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path

import pytest
from tests.apache_kafka import ApacheKafka
from tests.cli.offsets import commit, fill
from tests.cli.tool import TOOL
from tests.waiting import wait_until

from headrace.testing import BrokerThread

RECORDS = 9
# Processes are killed up to so long after the lag has changed.
MOMENT_SECONDS = 0.5
LONG = [pytest.mark.long, pytest.mark.timeout(1800)]
RULES = """
every = "100ms"
[[rule]]
groups = "shop"
warning = {{ records = 5 }}
rise_after = "0s"
fall_after = "0s"
notify = "ops"
[notifier.ops]
webhook = "{url}"
"""


@contextmanager
def listening(told: list[str]) -> Iterator[str]:
    """The address of a webhook that notes the levels it is told."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.append(body["level"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def apache_broker() -> Iterator[ApacheKafka]:
    # The records have old times, and are not to be deleted for it.
    settings = {"group.initial.rebalance.delay.ms": "0", "log.retention.ms": "-1"}
    with ApacheKafka(settings=settings) as broker:
        yield broker


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("broker", 2),
        pytest.param("broker", 40, marks=LONG),
        pytest.param("apache_broker", 40, marks=LONG),
    ],
)
def test_every_change_is_told_whoever_is_killed(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    broker: BrokerThread | ApacheKafka = request.getfixturevalue(kind)
    fill(broker.bootstrap, "orders", [RECORDS])
    commit(broker.bootstrap, "shop", {("orders", 0): RECORDS})
    told: list[str] = []
    chance = random.Random(kills)
    running: list[subprocess.Popen[bytes]] = []
    with listening(told) as url, ExitStack() as stack:
        rules = tmp_path / "lag.toml"
        rules.write_text(RULES.format(url=url))
        log = stack.enter_context((tmp_path / "service.log").open("wb"))
        words = ["service", "lag", "--lag-config", str(rules), "-b", broker.bootstrap]

        def start() -> None:
            process = subprocess.Popen([*TOOL, *words], stdout=log, stderr=log)
            running.append(process)
            stack.callback(end, process)

        start()
        start()
        expected = []
        for number in range(kills):
            is_behind = number % 2 == 0
            commit(broker.bootstrap, "shop", {("orders", 0): 0 if is_behind else RECORDS})
            expected.append("warning" if is_behind else "ok")
            threading.Event().wait(chance.uniform(0, MOMENT_SECONDS))
            end(running.pop(chance.randrange(2)))
            start()
            wait_until(lambda: _path(told) == expected, f"{expected[-1]} is told; {told}")
    assert len(told) <= 2 * kills, told


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, as often as wanted."""
    process.kill()
    process.wait()


def _path(told: list[str]) -> list[str]:
    """The levels that were told, without repetitions."""
    return [level for level, _ in groupby(told)]
