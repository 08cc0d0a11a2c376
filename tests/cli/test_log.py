"""`headrace log` on the folder of a broker that has stopped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL, Headrace

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

SEGMENT = "00000000000000000000.log"


@pytest.fixture
def partition(headrace: Headrace, broker: BrokerThread) -> Path:
    """The folder of a partition with four records in two batches."""
    headrace("produce", "t", "-K", ":", stdin="k1:one\nk2:two\n")
    headrace("produce", "t", "-K", ":", stdin="k3:three\nk4:four\n")
    broker.stop()
    return broker.data_dir / "t-0"


def test_dump_prints_batches_and_their_records(headrace: Headrace, partition: Path) -> None:
    rows = json.loads(headrace("log", "dump", str(partition), "--deep", "-o", "json").stdout)
    batches = [row for row in rows if row["type"] == "batch"]
    assert [batch["base_offset"] for batch in batches] == [0, 2]
    records = [row for row in rows if row["type"] == "record"]
    assert [(row["offset"], row["key"], row["value"]) for row in records] == [
        (0, "k1", "one"),
        (1, "k2", "two"),
        (2, "k3", "three"),
        (3, "k4", "four"),
    ]


def test_dump_of_one_file_is_text_under_its_name(headrace: Headrace, partition: Path) -> None:
    lines = headrace("log", "dump", str(partition / SEGMENT)).stdout.splitlines()
    assert lines[0] == str(partition / SEGMENT)
    assert lines[1].startswith("  batch position=0 base_offset=0 last_offset=1 records=2 ")
    assert len(lines) == 3


def test_a_dump_into_a_closed_pipe_ends_quietly(partition: Path) -> None:
    command = f"{' '.join(TOOL)} log dump {partition} --deep | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_sound_folder_is_called_sound(headrace: Headrace, partition: Path) -> None:
    assert headrace("log", "verify", str(partition)).stdout == f"{partition}: sound\n"
    assert json.loads(headrace("log", "verify", str(partition.parent), "-o", "json").stdout) == []


def test_a_flipped_bit_is_an_error_with_its_place(headrace: Headrace, partition: Path) -> None:
    segment = partition / SEGMENT
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 1
    segment.write_bytes(damaged)
    findings = json.loads(
        headrace("log", "verify", str(partition), "-o", "json", fails=True).stdout
    )
    errors = [finding for finding in findings if finding["severity"] == "error"]
    assert [(error["file"], error["position"]) for error in errors] == [(str(segment), 0)]


def test_verify_fails_where_there_is_nothing_to_verify(headrace: Headrace, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no log")
    said = headrace("log", "verify", str(tmp_path), fails=True)
    assert f"{tmp_path} holds no log" in said.stderr
    assert "hint: name a partition's folder" in said.stderr
    assert "sound" not in said.stdout


def test_a_path_that_is_not_there_is_named(headrace: Headrace, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    for verb in ("dump", "verify"):
        assert f"{nowhere} does not exist" in headrace("log", verb, nowhere, fails=True).stderr
