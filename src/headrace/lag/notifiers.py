"""Notifiers: the log, a webhook, a command."""

from __future__ import annotations

import json
import logging
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Protocol

from headrace.lag.levels import Level
from headrace.lag.notices import Notice
from headrace.lag.rules import LOG, NotifierSpec
from headrace.telemetry.alarms import Alarms

# What a webhook says that trying again may cure.
_PASSING = (408, 425, 429)
ERROR_CHARS_MAX = 500

_log = logging.getLogger("headrace.lag")


class NotifyFailed(Exception):
    """A notice did not arrive."""

    def __init__(self, message: str, *, is_passing: bool = True) -> None:
        super().__init__(message)
        self.is_passing = is_passing


class Notifier(Protocol):
    """Somebody to be told; `tries` is how often, should it fail in passing."""

    tries: int

    def tell(self, notice: Notice) -> None:
        """Tell it, within a time; NotifyFailed if that did not work."""
        ...


class LogNotifier:
    """Writes to the log, and rings the alarm of the process for what is not well."""

    tries = 1

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms

    def tell(self, notice: Notice) -> None:
        if notice.level is Level.OK:
            _log.info("%s", notice.text)
        else:
            document = notice.document()
            self._alarms.ring("lag", document.pop("text"), **document)


class WebhookNotifier:
    """Posts the notice as JSON; any answer below 300 is an arrival.

    A token comes from a file, read anew each time, and goes along as `Authorization: Bearer`.
    """

    def __init__(
        self, url: str, timeout_ms: int, tries: int, token_file: Path | None = None
    ) -> None:
        self.tries = tries
        self._url = url
        self._timeout_s = timeout_ms / 1000
        self._token_file = token_file

    def tell(self, notice: Notice) -> None:
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
            raise NotifyFailed(f"{self._url} could not be told: {reason}") from None


class _StayHere(urllib.request.HTTPRedirectHandler):
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


_opener = urllib.request.build_opener(_StayHere)


class CommandNotifier:
    """Runs a command without a shell, with the notice as JSON on its standard input."""

    def __init__(self, command: tuple[str, ...], timeout_ms: int, tries: int) -> None:
        self.tries = tries
        self._command = command
        self._timeout_s = timeout_ms / 1000

    def tell(self, notice: Notice) -> None:
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
                f"{self._command[0]} was not done within {self._timeout_s:g} s"
            ) from None
        except OSError as problem:
            raise NotifyFailed(
                f"{self._command[0]} could not be run: {problem.strerror}", is_passing=False
            ) from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-ERROR_CHARS_MAX:]
            raise NotifyFailed(f"{self._command[0]} ended with {done.returncode}: {said}")


def make_notifiers(specs: Mapping[str, NotifierSpec], alarms: Alarms) -> dict[str, Notifier]:
    """All notifiers by name, the log among them."""
    made: dict[str, Notifier] = {LOG: LogNotifier(alarms)}
    for name, spec in specs.items():
        if spec.webhook is not None:
            made[name] = WebhookNotifier(spec.webhook, spec.timeout_ms, spec.tries, spec.token_file)
        else:
            made[name] = CommandNotifier(spec.command, spec.timeout_ms, spec.tries)
    return made
