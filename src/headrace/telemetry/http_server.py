"""A small HTTP server in a thread, for metrics and for confirmations."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

CONNECTIONS_MAX = 64
# How soon a stop is noticed.
POLL_SECONDS = 0.1


class HttpServer:
    """Listens from when it is made, and answers within its `with` block."""

    def __init__(
        self, host: str, port: int, handler: type[BaseHTTPRequestHandler], name: str
    ) -> None:
        self._server = _Server((host, port), handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), name=name, daemon=True
        )

    @property
    def address(self) -> str:
        """The HOST:PORT that it listens on."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, up to a limit; the others wait to be accepted."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._free.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()
