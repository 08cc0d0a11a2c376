"""Spark calls this process with each batch only where somebody hears it."""

from __future__ import annotations

import fcntl
import socket
from types import SimpleNamespace

import pytest

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.way_back import DESCRIPTORS_MAX, check_way_back


def session(end: socket.socket) -> SimpleNamespace:
    """As much of a Spark session as is looked at; its way back is open."""
    server = SimpleNamespace(server_socket=end)
    gateway = SimpleNamespace(_callback_server=server)
    return SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway))


def test_a_way_back_that_nobody_could_come_by_is_an_error() -> None:
    with socket.socket() as low:
        high = fcntl.fcntl(low.fileno(), fcntl.F_DUPFD_CLOEXEC, DESCRIPTORS_MAX)
        if low.fileno() < DESCRIPTORS_MAX:
            check_way_back(session(low))
        with (
            socket.socket(fileno=high) as far,
            pytest.raises(PipelineError, match="more than 1,024 files open"),
        ):
            check_way_back(session(far))
