"""A node's metrics in Prometheus's text format, and a small HTTP server for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from headrace.telemetry.http_server import HttpServer

PREFIX = "headrace_dispatch_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# These may go down; all others only count up.
GAUGES = {
    "partitions": "Partitions that this node owns.",
    "running": "Jobs that run here now.",
    "spool_bytes": "Bytes of unfinished jobs of this node.",
    "spool_items": "Unfinished jobs of this node.",
    "spool_waiting": "Submitters that wait for room in the spool.",
    "store_away": "1 while the token store does not answer.",
    "unfinished": "Jobs of this node without an outcome.",
    "waiting": "Jobs of this node that wait for a token.",
}
COUNTERS = {
    "done": "Jobs that ran here and succeeded.",
    "failed": "Jobs that ran here and raised an error.",
    "lost_back": "Own jobs that the group passed over, sent again.",
    "owner_copies": "Copies of records, left by retried sends, that were dropped.",
    "refused_back": "Own jobs that were refused for their fence, sent again.",
    "sent": "Own jobs sent with a token.",
    "store_calls": "Calls of the token store.",
    "store_failures": "Calls of the token store that failed.",
    "submitted": "Jobs submitted here.",
}


def text(metrics: Mapping[str, int], topic: str) -> str:
    """The metrics in Prometheus's text format."""
    label = topic.replace("\\", r"\\").replace('"', r"\"")
    lines: list[str] = []
    for name, value in sorted(metrics.items()):
        is_gauge = name in GAUGES
        full = f"{PREFIX}{name}" if is_gauge else f"{PREFIX}{name}_total"
        about = GAUGES.get(name) or COUNTERS.get(name) or f"Times: {name.replace('_', ' ')}."
        lines += [
            f"# HELP {full} {about}",
            f"# TYPE {full} {'gauge' if is_gauge else 'counter'}",
            f'{full}{{topic="{label}"}} {value}',
        ]
    return "\n".join(lines) + "\n"


class MetricsServer(HttpServer):
    """Serves the text at /metrics; a context manager."""

    def __init__(self, host: str, port: int, show: Callable[[], str]) -> None:
        handler = type("Handler", (_Handler,), {"show": staticmethod(show)})
        super().__init__(host, port, handler, "headrace-metrics")


class _Handler(BaseHTTPRequestHandler):
    show: Callable[[], str]

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = self.show().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log every request."""
