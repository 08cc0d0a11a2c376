"""Confirmations by HTTP, for consumers that cannot write to Kafka.

    POST /confirm/ID            the message is handled
    POST /confirm/ID?group=G    ... by this group
    POST /confirm               many at once, as JSON: [{"id": "...", "group": "..."}, ...]

The answer {"confirmed": N} is the number of messages that these confirmations complete; it is sent
once they are durable.
"""

from __future__ import annotations

import hmac
import json
import logging
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.store.columns import is_plain
from headrace.telemetry.http_server import HttpServer

if TYPE_CHECKING:
    from headrace.store import Store

BODY_BYTES_MAX = 1024 * 1024
DRAINED_BYTES_MAX = 16 * BODY_BYTES_MAX
LENGTH_DIGITS_MAX = 18
CONFIRMATIONS_MAX = 10_000
TIMEOUT_SECONDS = 10
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

_log = logging.getLogger("headrace.outbox")

Confirmations = list[tuple[str, str | None]]


class BadRequest(Exception):
    """A request that cannot be understood, with the reason."""


class ConfirmServer(HttpServer):
    """A small HTTP server beside the relay; a context manager.

    On an address other than loopback it requires a token, sent as `Authorization: Bearer TOKEN`.
    """

    def __init__(self, store: Store, host: str, port: int, *, token: str | None = None) -> None:
        if token is None and host not in LOOPBACK:
            raise ValueError(
                f"anyone who reaches {host} could send confirmations: "
                "set a token, or listen on 127.0.0.1"
            )
        handler = type("Handler", (_Handler,), {"store": store, "token": token})
        super().__init__(host, port, handler, "headrace-confirm-http")


class _Handler(BaseHTTPRequestHandler):
    store: Store
    token: str | None
    timeout = TIMEOUT_SECONDS
    server_version = "headrace"
    sys_version = ""

    def do_POST(self) -> None:
        """Note confirmations and answer how many messages they complete."""
        from headrace.store import StoreUnavailable

        if not self._is_authorized():
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": "a bearer token is required"})
            return
        try:
            confirmations = self._read()
            confirmed = self.store.outbox.confirm(confirmations)
        except BadRequest as problem:
            self._answer(HTTPStatus.BAD_REQUEST, {"error": str(problem)})
        except StoreUnavailable as problem:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": problem.message})
        else:
            self._answer(HTTPStatus.OK, {"confirmed": confirmed})

    def _is_authorized(self) -> bool:
        if self.token is None:
            return True
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode())

    def _read(self) -> Confirmations:
        body = self._body()
        address = urlsplit(self.path)
        if address.path == "/confirm":
            return parse_many(body)
        if not address.path.startswith("/confirm/"):
            raise BadRequest("POST to /confirm/ID or to /confirm")
        groups = parse_qs(address.query).get("group", [])
        return [
            (_id(unquote(address.path.removeprefix("/confirm/"))), groups[0] if groups else None)
        ]

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdecimal() and len(length) <= LENGTH_DIGITS_MAX):
            raise BadRequest("a body needs a Content-Length that is a number")
        if int(length) > BODY_BYTES_MAX:
            # A caller that is still writing would see a broken connection, not the answer.
            left = min(int(length), DRAINED_BYTES_MAX)
            while left > 0 and (piece := self.rfile.read(min(left, BODY_BYTES_MAX))):
                left -= len(piece)
            raise BadRequest(f"the body is {length} bytes long; the limit is {BODY_BYTES_MAX}")
        return self.rfile.read(int(length))

    def _answer(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log to the logger of the outbox."""
        _log.debug(format, *args)


def parse_many(body: bytes) -> Confirmations:
    """Confirmations of a JSON body; raises BadRequest."""
    try:
        items = json.loads(body)
    except ValueError:
        raise BadRequest("the body is not JSON") from None
    if not isinstance(items, list) or len(items) > CONFIRMATIONS_MAX:
        raise BadRequest(f"the body must be a list of at most {CONFIRMATIONS_MAX} confirmations")
    found: Confirmations = []
    for item in items:
        group = item.get("group") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(group, str | None):
            raise BadRequest('a confirmation must be {"id": "...", "group": "..."}')
        found.append((_id(item.get("id")), group))
    return found


def _id(given: object) -> str:
    if not isinstance(given, str) or not given or not is_plain(given):
        raise BadRequest("an id must have 1 to 256 characters and no zero byte")
    return given
