"""Notices reach the log, a web server and a command, in spite of passing failures."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from headrace.client.clock import SystemClock
from headrace.lag.levels import Level, Reading
from headrace.lag.notices import Notice
from headrace.lag.notifiers import (
    CommandNotifier,
    Deliveries,
    LogNotifier,
    NotifyFailed,
    WebhookNotifier,
    make_notifiers,
)
from headrace.lag.rules import NotifierSpec
from headrace.telemetry.alarms import Alarm, Alarms

NOTICE = Notice(
    group="shop; rm -rf ~", level=Level.CRITICAL, was=Level.OK, reading=Reading(7, 90_000), at_ms=1
)


class Server:
    """A web server that notes what is posted, and answers what it is told to."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []
        self.tokens: list[str | None] = []
        self.url = ""


@contextmanager
def running(server: Server) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            server.bodies.append(json.loads(body))
            server.tokens.append(self.headers["Authorization"])
            self.send_response(server.answers.pop(0) if server.answers else 204)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        server.url = f"http://127.0.0.1:{httpd.server_port}/lag"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            httpd.shutdown()
            thread.join()


def deliver(notifier: WebhookNotifier | CommandNotifier) -> None:
    """Deliver a notice and wait until that has come to its end."""
    deliveries = Deliveries({"it": notifier}, SystemClock())
    done = threading.Event()
    try:
        deliveries.send(NOTICE, ["it", "nobody"], done.set)
        wait_until(done.is_set, "the notice is told or given up")
    finally:
        deliveries.close()


def test_a_webhook_gets_the_notice_as_json(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with running(Server()) as server:
        WebhookNotifier(server.url, 5_000, 1, token).notify(NOTICE)
        assert server.bodies == [NOTICE.document()]
        assert server.tokens == ["Bearer secret"]


def test_a_webhook_is_tried_again_while_its_failure_may_pass() -> None:
    with running(Server(503, 429)) as server:
        deliver(WebhookNotifier(server.url, 5_000, 4))
        assert len(server.bodies) == 3


def test_a_webhook_that_refuses_is_not_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    with running(Server(404)) as server:
        deliver(WebhookNotifier(server.url, 5_000, 4))
        assert len(server.bodies) == 1
    assert "answered 404" in caplog.text
    assert "failed; lost" in caplog.text


def test_a_redirect_is_no_arrival_and_is_not_followed() -> None:
    with (
        running(Server(302)) as server,
        pytest.raises(NotifyFailed, match="answered 302") as caught,
    ):
        WebhookNotifier(server.url, 5_000, 1).notify(NOTICE)
    assert not caught.value.is_passing
    assert len(server.bodies) == 1


def test_a_webhook_that_is_silent_takes_no_longer_than_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        notifier = WebhookNotifier(f"http://127.0.0.1:{silent.getsockname()[1]}", 50, 1)
        with pytest.raises(NotifyFailed, match="timed out"):
            notifier.notify(NOTICE)


def test_nobody_listening_is_a_failure_that_may_pass() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotifyFailed, match="refused") as caught:
        WebhookNotifier(f"http://127.0.0.1:{port}", 1_000, 1).notify(NOTICE)
    assert caught.value.is_passing


def test_a_command_gets_its_words_as_they_are_and_the_notice_on_its_input(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    program = (
        "import json, sys; json.dump([sys.argv[2:], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    )
    words = (sys.executable, "-c", program, str(out), "$HOME; true", "*")
    CommandNotifier(words, 30_000, 1).notify(NOTICE)
    assert json.loads(out.read_text()) == [["$HOME; true", "*"], NOTICE.document()]


def test_a_command_that_fails_says_why() -> None:
    words = (sys.executable, "-c", "raise SystemExit('no network')")
    with pytest.raises(NotifyFailed, match="ended with 1: no network"):
        CommandNotifier(words, 30_000, 1).notify(NOTICE)


def test_a_command_that_hangs_is_ended() -> None:
    words = (sys.executable, "-c", "import threading; threading.Event().wait()")
    with pytest.raises(NotifyFailed, match=r"did not end within 0.2 s"):
        CommandNotifier(words, 200, 1).notify(NOTICE)


def test_a_command_that_is_not_there_is_not_tried_again() -> None:
    with pytest.raises(NotifyFailed, match="cannot be run") as caught:
        CommandNotifier(("/nowhere/page",), 1_000, 1).notify(NOTICE)
    assert not caught.value.is_passing


def test_the_log_rings_the_alarm_unless_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    alarms, heard = Alarms(), list[Alarm]()
    alarms.add(heard.append)
    notifier = LogNotifier(alarms)
    notifier.notify(NOTICE)
    assert [(alarm.name, alarm.details["level"]) for alarm in heard] == [("lag", "critical")]
    notifier.notify(
        Notice(group="shop", level=Level.OK, was=Level.CRITICAL, reading=Reading(), at_ms=1)
    )
    assert len(heard) == 1
    assert "group shop has recovered" in caplog.text


class Hanging:
    """A notifier that takes as long as the test wants."""

    tries = 1

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def notify(self, notice: Notice) -> None:
        self.may_end.wait()


def test_one_that_hangs_does_not_hold_the_others() -> None:
    hanging, done = Hanging(), threading.Event()
    with running(Server()) as server:
        made = make_notifiers({"works": NotifierSpec(webhook=server.url)}, Alarms())
        assert sorted(made) == ["log", "works"]
        deliveries = Deliveries({**made, "hangs": hanging}, SystemClock())
        deliveries.send(NOTICE, ["hangs", "works"], done.set)
        wait_until(lambda: server.bodies, "the other one has been told")
        assert not done.is_set()
        hanging.may_end.set()
        wait_until(done.is_set, "both have been told")
        deliveries.close()


def test_a_close_does_not_wait_for_further_tries() -> None:
    with running(Server(*[503] * 100)) as server:
        deliveries = Deliveries({"it": WebhookNotifier(server.url, 5_000, 100)}, SystemClock())
        done = threading.Event()
        deliveries.send(NOTICE, ["it"], done.set)
        wait_until(lambda: server.bodies, "the first try")
        deliveries.close()
        # So a successor takes it for untold.
        assert not done.is_set()
