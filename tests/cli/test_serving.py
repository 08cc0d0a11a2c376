"""`headrace broker` and `headrace up` as processes: ready, answering, stopping, refusing."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.cli.tool import TIMEOUT_SECONDS, TOOL

from headrace.testing import BrokerThread

READY = re.compile(r"ready (127\.0\.0\.1:\d+) pid=(\d+) data=(.*)\n")


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(process.stderr.read())
    return line


def refused(*arguments: str) -> str:
    """Standard error of a start that must fail, without a traceback."""
    done = subprocess.run(
        [*TOOL, *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def test_the_ready_line_names_an_address_that_answers(tmp_path: Path) -> None:
    with started("broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as process:
        ready = READY.fullmatch(first_line(process))
        assert ready
        assert int(ready[2]) == process.pid
        assert ready[3] == str(tmp_path)
        admin = AdminClient({"bootstrap.servers": ready[1]})
        assert admin.list_topics(timeout=10).brokers


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["up", "broker"])
def test_a_signal_stops_it_cleanly(verb: str, number: signal.Signals, tmp_path: Path) -> None:
    with started(verb, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as process:
        first_line(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
        assert (process.returncode, errors) == (0, "")


def test_up_says_what_runs_where(tmp_path: Path) -> None:
    with started("up", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as process:
        assert first_line(process) == "Headrace is up\n"
        assert re.fullmatch(r"  broker    127\.0\.0\.1:\d+\n", first_line(process))
        assert first_line(process) == f"  data      {tmp_path}\n"


def test_settings_come_from_the_file_and_the_options(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"num.partitions=2\nlog.dirs={tmp_path / 'data'}\n")
    options = ("--config", str(file), "--set", "num.partitions=5", "--listen", "127.0.0.1:0")
    with started("broker", *options) as process:
        ready = READY.fullmatch(first_line(process))
        assert ready
        assert ready[3] == str(tmp_path / "data")
        admin = AdminClient({"bootstrap.servers": ready[1]})
        from confluent_kafka.admin import NewTopic

        admin.create_topics([NewTopic("t")])["t"].result(10)
        assert len(admin.list_topics(timeout=10).topics["t"].partitions) == 5


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        errors = refused("up", "--listen", address, "--data-dir", str(tmp_path))
    assert address in errors
    assert "in use" in errors


def test_a_data_folder_in_use_is_named(broker: BrokerThread) -> None:
    errors = refused("up", "--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir))
    assert str(broker.data_dir) in errors


def test_a_misspelt_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    errors = refused("broker", "--data-dir", str(tmp_path), "--set", "num.partition=3")
    assert "num.partition" in errors
    assert "did you mean num.partitions?" in errors


def test_a_bad_value_is_refused_with_the_reason(tmp_path: Path) -> None:
    errors = refused("broker", "--data-dir", str(tmp_path), "--set", "num.partitions=many")
    assert "'many' is not valid: expected a whole number" in errors


def test_listening_beyond_loopback_needs_the_flag(tmp_path: Path) -> None:
    errors = refused("broker", "--listen", "0.0.0.0:0", "--data-dir", str(tmp_path))
    assert "not loopback" in errors
    assert "authentication" in errors


def test_a_listen_address_without_a_port_is_refused(tmp_path: Path) -> None:
    errors = refused("broker", "--listen", "localhost", "--data-dir", str(tmp_path))
    assert "--listen 'localhost' is not HOST:PORT" in errors


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    errors = refused(
        "broker", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file" / "x")
    )
    assert str(tmp_path / "file") in errors
