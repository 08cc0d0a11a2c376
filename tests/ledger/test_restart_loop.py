"""One client's life after the other: failures, ends, and loop that are stuck."""

from __future__ import annotations

import logging
import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.ledger import restart_loop as module
from headrace.ledger import service as service_module
from headrace.ledger.delay.service import delay_service
from headrace.ledger.restart_loop import RestartLoop

SECONDS = 10.0


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)


def test_what_fails_starts_again_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    begun = 0
    third = threading.Event()

    def live(stopping: threading.Event) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        if begun == 2:
            raise ZeroDivisionError
        third.set()
        stopping.wait(SECONDS)

    loop = RestartLoop("worker", live)
    loop.start()
    assert third.wait(SECONDS)
    loop.stop(SECONDS)
    assert begun == 3
    warning, error = caplog.records
    assert (warning.levelno, error.levelno) == (logging.WARNING, logging.ERROR)
    assert "worker restarts: KafkaError{code=_TRANSPORT" in warning.getMessage()
    assert error.exc_info is not None
    assert error.exc_info[0] is ZeroDivisionError


def test_a_life_ends_as_soon_as_it_is_asked_to() -> None:
    ended = threading.Event()
    begun = threading.Event()

    def live(stopping: threading.Event) -> None:
        begun.set()
        assert stopping.wait(SECONDS)
        ended.set()

    # It would look once in an hour by itself.
    loop = RestartLoop("worker", live, check_s=3600)
    loop.start()
    assert begun.wait(SECONDS)
    loop.stop(SECONDS)
    assert ended.is_set()
    assert not loop._thread.is_alive()


def test_a_life_that_is_stuck_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    release, second, back = threading.Event(), threading.Event(), threading.Event()
    asked_to_end: list[bool] = []
    begun = 0

    def live(stopping: threading.Event) -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            release.wait(SECONDS)
            asked_to_end.append(stopping.is_set())
            back.set()
            return
        second.set()
        while not stopping.is_set():
            stopping.wait(0.01)

    loop = RestartLoop("worker", live, stuck_s=0.2, check_s=0.01)
    loop.start()
    assert second.wait(SECONDS)
    # The stuck one comes back at last, ends, and does not disturb the other.
    release.set()
    assert back.wait(SECONDS)
    assert asked_to_end == [True]
    loop.stop(SECONDS)
    assert begun == 2
    assert "worker is stuck in its client" in caplog.text


def test_each_life_has_an_admin_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # librdkafka's list_offsets refuses with FENCED_LEADER_EPOCH forever after some restarts.
    made: list[object] = []
    monkeypatch.setattr(service_module, "ensure_topics", lambda *asked: made.append(asked))
    service = delay_service({"bootstrap.servers": "127.0.0.1:1"})
    assert service._new_admin() is not service._new_admin()
    assert len(made) == 1
