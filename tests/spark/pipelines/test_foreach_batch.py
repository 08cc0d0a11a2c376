"""A stream that Spark could not call back is refused."""

from __future__ import annotations

import fcntl
import socket
from types import SimpleNamespace

import pytest

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.foreach_batch import DESCRIPTORS_MAX, check_callbacks


def session(end: socket.socket) -> SimpleNamespace:
    """The parts of a Spark session that are used, with its callback server."""
    server = SimpleNamespace(server_socket=end)
    gateway = SimpleNamespace(_callback_server=server)
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))


def test_a_callback_socket_that_select_cannot_watch_is_an_error() -> None:
    with socket.socket() as low:
        high = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, DESCRIPTORS_MAX)
        if low.fileno() < DESCRIPTORS_MAX:
            check_callbacks(session(low))
        with (
            socket.socket(fileno=high) as far,
            pytest.raises(PipelineError, match="more than 1,024 files open"),
        ):
            check_callbacks(session(far))
