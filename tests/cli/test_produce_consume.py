"""`headrace produce` and `headrace consume` against a real broker, beside kcat."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.tool import TIMEOUT_SECONDS, TOOL, Headrace

if TYPE_CHECKING:
    from headrace.testing import BrokerThread

LINES = "k1:one\nk2:two\nk3:three\n"
needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")


def test_lines_come_back_in_order(headrace: Headrace) -> None:
    headrace("produce", "t", "-K", ":", stdin=LINES)
    assert headrace("consume", "t", "-e").stdout == "one\ntwo\nthree\n"
    assert headrace("consume", "t", "-e", "-K", ":").stdout == LINES


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_acks_level_carries_records(headrace: Headrace, codec: str) -> None:
    value = "x" * 1000
    for acks in ("0", "1", "all"):
        headrace("produce", "t", "-z", codec, "--acks", acks, stdin=f"{value}\n" * 5)
    # acks=0 is not confirmed, but its connection was flushed before the later ones were answered.
    assert headrace("consume", "t", "-c", "15").stdout == f"{value}\n" * 15


def test_positions_choose_what_is_read(headrace: Headrace) -> None:
    headrace("produce", "t", stdin="a\nb\nc\nd\n")
    read = ("consume", "t", "-e", "--partition", "0", "--offset")
    assert headrace(*read, "2").stdout == "c\nd\n"
    assert headrace(*read, "-1").stdout == "d\n"
    assert headrace(*read, "end").stdout == ""
    assert headrace(*read, "beginning", "-c", "1").stdout == "a\n"


def test_times_choose_what_is_read(headrace: Headrace) -> None:
    lines = [json.dumps({"payload": str(ts), "ts": ts}) for ts in (1000, 2000, 3000, 4000)]
    headrace("produce", "t", "-J", stdin="\n".join(lines))
    assert headrace("consume", "t", "-e", "--offset", "s@2000").stdout == "2000\n3000\n4000\n"
    until = ("--offset", "s@2000", "--offset", "e@4000")
    # An end by time is an end: it needs no -e.
    assert headrace("consume", "t", *until).stdout == "2000\n3000\n"


def test_a_group_goes_on_where_it_stopped(headrace: Headrace) -> None:
    headrace("produce", "t", stdin="a\nb\nc\n")
    assert headrace("consume", "t", "--group", "g", "-c", "2").stdout == "a\nb\n"
    assert headrace("consume", "t", "--group", "g", "-e").stdout == "c\n"


def test_json_lines_copy_a_topic(headrace: Headrace) -> None:
    headrace("produce", "a", "-K", ":", "-H", "h=1", stdin=LINES)
    copied = headrace("consume", "a", "-e", "-J").stdout
    headrace("produce", "b", "-J", stdin=copied)
    template = "%k %s %h %T\\n"
    originals = headrace("consume", "a", "-e", "-f", template).stdout
    assert headrace("consume", "b", "-e", "-f", template).stdout == originals


def test_a_null_value_is_not_an_empty_one(headrace: Headrace) -> None:
    headrace("produce", "t", "-K", ":", "-Z", stdin="k:\n")
    headrace("produce", "t", "-K", ":", stdin="k:\n")
    assert headrace("consume", "t", "-e", "-f", "%S ").stdout == "-1 0 "


def test_a_reader_that_goes_away_ends_it_quietly(headrace: Headrace, broker: BrokerThread) -> None:
    headrace("produce", "t", stdin="a\nb\nc\n")
    tool = " ".join(TOOL)
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{tool} consume t -b {broker.bootstrap} | head -n 1"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_quietly(
    headrace: Headrace, broker: BrokerThread, number: signal.Signals
) -> None:
    headrace("produce", "t", stdin="a\n")
    with subprocess.Popen(
        [*TOOL, "consume", "t", "-b", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "a\n"
        process.send_signal(number)
        rest, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, rest, errors) == (0, "", "")


def test_a_record_appears_while_it_waits(headrace: Headrace, broker: BrokerThread) -> None:
    headrace("topic", "create", "t")
    with subprocess.Popen(
        [*TOOL, "consume", "t", "-b", broker.bootstrap, "-c", "2"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        headrace("produce", "t", stdin="first\n")
        assert process.stdout.readline() == "first\n"
        headrace("produce", "t", stdin="second\n")
        assert process.stdout.readline() == "second\n"
        assert process.wait(TIMEOUT_SECONDS) == 0


def test_what_is_not_there_is_named(headrace: Headrace) -> None:
    headrace("topic", "create", "orders", "-p", "2")
    errors = headrace("consume", "order", fails=True).stderr
    assert "there is no topic 'order'" in errors
    assert "did you mean orders?" in errors
    errors = headrace("consume", "orders", "-p", "5", fails=True).stderr
    assert "has no partition 5" in errors
    assert "0 to 1" in errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-J", "-K", ":"), "exclude each other"),
        (("--group", "g", "-p", "0"), "cannot be used with --group"),
        (("--group", "g", "--offset", "5"), "committed offsets"),
        (("-f", "%q"), "unknown token %q"),
        (("--offset", "soon"), "is not a position"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    headrace: Headrace, options: tuple[str, ...], words: str
) -> None:
    assert words in headrace("consume", "t", *options, fails=True).stderr


def test_a_refused_record_is_reported_with_a_hint(headrace: Headrace) -> None:
    headrace("topic", "create", "t", "-c", "max.message.bytes=100")
    errors = headrace("produce", "t", stdin="x" * 500 + "\n", fails=True).stderr
    assert "1 of 1 records were not written" in errors
    assert "max.message.bytes" in errors


def test_no_broker_is_one_line_and_a_hint(tmp_path: Path) -> None:
    done = subprocess.run(
        [*TOOL, "produce", "t", "-b", "127.0.0.1:1"],
        input="x\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "headrace: no broker answers at 127.0.0.1:1 (Connection refused)\n"
        "  hint: start one with: headrace up\n"
    )


@needs_kcat
@pytest.mark.parametrize(
    "template", ["%t %p %o %k=%s\\n", "%K %S %T [%h]\\n", "%R%s\\x21\\n", "%%\\t%s\\r\\n"]
)
def test_formats_print_as_kcat_prints_them(
    headrace: Headrace, broker: BrokerThread, template: str
) -> None:
    headrace("produce", "t", "-K", ":", "-H", "a=1", "-H", "b", "-H", "c=", stdin=LINES)
    headrace("produce", "t", "-Z", stdin="plain\n\n")
    ours = headrace("consume", "t", "-e", "-f", template).stdout
    assert ours == kcat(broker, "-f", template)


@needs_kcat
def test_json_lines_say_what_kcats_say(headrace: Headrace, broker: BrokerThread) -> None:
    headrace("produce", "t", "-K", ":", "-H", "a=1", "-H", "b", stdin=LINES)
    headrace("produce", "t", "-Z", stdin="plain\n\n")
    ours = [json.loads(line) for line in headrace("consume", "t", "-e", "-J").stdout.splitlines()]
    theirs = [json.loads(line) for line in kcat(broker, "-J").splitlines()]
    for line in theirs:
        # Which broker it came from; the library here does not tell.
        line.pop("broker")
    assert ours == theirs


def kcat(broker: BrokerThread, *options: str) -> str:
    done = subprocess.run(
        ["kcat", "-C", "-b", broker.bootstrap, "-t", "t", "-e", "-q", *options],
        capture_output=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout.decode(errors="surrogateescape")
