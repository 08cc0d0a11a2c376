"""`headrace run`: the app of a module, until a signal."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL
from tests.handlers.running import committed, send
from tests.waiting import wait_until

from headrace.testing import BrokerThread

SHOP = """
from headrace.handlers import App

app = App("127.0.0.1:1")
nothing = App("127.0.0.1:1")
number = 7

@app.handler("orders", group="shop")
def work(order: dict) -> None:
    print("order", order["id"], flush=True)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_app_runs_until_a_signal_and_commits(
    broker: BrokerThread, shop: Path, number: signal.Signals
) -> None:
    send(broker.bootstrap, "orders", [b'{"id":%d}' % n for n in range(3)])
    command = [*TOOL, "run", "shop:app", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, cwd=shop, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        process.send_signal(number)
        assert process.wait(TIMEOUT_SECONDS) == 0
    assert lines[0] == f"running shop.work on {broker.bootstrap}\n"
    assert lines[1:] == ["order 0\n", "order 1\n", "order 2\n"]
    wait_until(lambda: committed(broker.bootstrap, "shop", "orders") == 3)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("shop", "'shop' is not MODULE:APP"),
        ("shap:app", "there is no module 'shap'"),
        ("shop:number", "'number' in module shop is not an App"),
        ("shop:appp", "did you mean shop:app?"),
        ("shop:nothing", "shop:nothing has no handlers"),
    ],
)
def test_a_target_that_is_no_app_is_named(shop: Path, target: str, words: str) -> None:
    done = subprocess.run(
        [*TOOL, "run", target], cwd=shop, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert words in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr
