"""Notifiers (log, webhook, command), and the threads that deliver notices to them."""

from __future__ import annotations

import json
import logging
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Protocol

from headrace.client.clock import Clock
from headrace.lag.levels import Level
from headrace.lag.notices import Notice
from headrace.lag.rules import LOG, NotifierSpec
from headrace.telemetry.alarms import Alarms

# Statuses of a webhook that are worth a retry.
_PASSING = (408, 425, 429)
ERROR_CHARS_MAX = 500
QUEUE_MAX = 1000
FIRST_PAUSE_MS = 500
JOIN_SECONDS = 10.0

_log = logging.getLogger("headrace.lag")


class NotifyFailed(Exception):
    """A notice was not delivered."""

    def __init__(self, message: str, *, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Notifier(Protocol):
    """Receives notices; `tries` limits the attempts."""

    tries: int

    def notify(self, notice: Notice) -> None:
        """Deliver a notice in limited time; NotifyFailed if that fails."""
        ...


class LogNotifier:
    """Rings the alarm `lag` for a raised level, and logs a recovery."""

    tries = 1

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms

    def notify(self, notice: Notice) -> None:
        if notice.level is Level.OK:
            _log.info("%s", notice.text)
        else:
            document = notice.document()
            self._alarms.ring("lag", document.pop("text"), **document)


class WebhookNotifier:
    """Posts the notice as JSON; any status below 300 is a success.

    A token is read from a file each time, and sent as `Authorization: Bearer`.
    """

    def __init__(
        self, url: str, timeout_ms: int, tries: int, token_file: Path | None = None
    ) -> None:
        self.tries = tries
        self._url = url
        self._timeout_s = timeout_ms / 1000
        self._token_file = token_file

    def notify(self, notice: Notice) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "headrace-lag"}
        try:
            if self._token_file is not None:
                headers["Authorization"] = f"Bearer {self._token_file.read_text().strip()}"
            request = urllib.request.Request(
                self._url, json.dumps(notice.document()).encode(), headers, method="POST"
            )
            with _opener.open(request, timeout=self._timeout_s):
                pass
        except urllib.error.HTTPError as answer:
            with answer:
                is_passing = answer.code >= 500 or answer.code in _PASSING
                raise NotifyFailed(
                    f"{self._url} answered {answer.code} {answer.reason}", is_passing=is_passing
                ) from None
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "reason", None) or problem
            raise NotifyFailed(f"{self._url} cannot be reached: {reason}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would turn the POST into a GET, and carry the token elsewhere."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)


class CommandNotifier:
    """Runs a command without a shell, with the notice as JSON on its standard input."""

    def __init__(self, command: tuple[str, ...], timeout_ms: int, tries: int) -> None:
        self.tries = tries
        self._command = command
        self._timeout_s = timeout_ms / 1000

    def notify(self, notice: Notice) -> None:
        try:
            done = subprocess.run(
                self._command,
                input=json.dumps(notice.document()).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=self._timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotifyFailed(
                f"{self._command[0]} did not end within {self._timeout_s:g} s"
            ) from None
        except OSError as problem:
            raise NotifyFailed(
                f"{self._command[0]} cannot be run: {problem.strerror}", is_passing=False
            ) from None
        if done.returncode:
            error = done.stderr.decode(errors="replace").strip()[-ERROR_CHARS_MAX:]
            raise NotifyFailed(f"{self._command[0]} ended with {done.returncode}: {error}")


def make_notifiers(specs: Mapping[str, NotifierSpec], alarms: Alarms) -> dict[str, Notifier]:
    """All notifiers by name, including the log."""
    made: dict[str, Notifier] = {LOG: LogNotifier(alarms)}
    for name, spec in specs.items():
        if spec.webhook is not None:
            made[name] = WebhookNotifier(spec.webhook, spec.timeout_ms, spec.tries, spec.token_file)
        else:
            made[name] = CommandNotifier(spec.command, spec.timeout_ms, spec.tries)
    return made


class Deliveries:
    """Delivers notices in a thread per notifier, so that a slow one delays no other."""

    def __init__(self, notifiers: Mapping[str, Notifier], clock: Clock) -> None:
        self._clock = clock
        self._stop = threading.Event()
        self._queues: dict[str, queue.Queue[tuple[Notice, _Countdown]]] = {}
        self._threads = []
        for name, notifier in notifiers.items():
            self._queues[name] = queue.Queue(QUEUE_MAX)
            thread = threading.Thread(
                target=self._work, args=(name, notifier), name=f"lag-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def send(self, notice: Notice, names: Iterable[str], done: Callable[[], None]) -> None:
        """Notify these; `done` is called when each of them is done or was given up."""
        chosen = sorted(set(names) & self._queues.keys())
        count = _Countdown(len(chosen), done)
        if not chosen:
            done()
        for name in chosen:
            try:
                self._queues[name].put_nowait((notice, count))
            except queue.Full:
                _log.error("the queue of notifier %s is full; lost: %s", name, notice.text)
                count.down()

    def close(self) -> None:
        """Stop; notices that are not delivered yet are dropped, and their `done` is not called."""
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _work(self, name: str, notifier: Notifier) -> None:
        while not self._stop.is_set():
            try:
                notice, count = self._queues[name].get(timeout=0.1)
            except queue.Empty:
                continue
            if self._deliver(name, notifier, notice):
                count.down()

    def _deliver(self, name: str, notifier: Notifier, notice: Notice) -> bool:
        """Deliver a notice, with retries after growing pauses; False if stopped before the end."""
        for attempt in range(notifier.tries):
            if attempt and self._clock.wait(self._stop, FIRST_PAUSE_MS << (attempt - 1)):
                return False
            try:
                notifier.notify(notice)
                return True
            except NotifyFailed as failure:
                _log.warning("notifier %s, try %d: %s", name, attempt + 1, failure)
                if not failure.is_passing:
                    break
            except Exception:
                _log.exception("notifier %s, try %d", name, attempt + 1)
        _log.error("notifier %s failed; lost: %s", name, notice.text)
        return True


class _Countdown:
    """Calls a function when it reaches zero."""

    def __init__(self, left: int, done: Callable[[], None]) -> None:
        self._left = left
        self._done = done
        self._lock = threading.Lock()

    def down(self) -> None:
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._done()
