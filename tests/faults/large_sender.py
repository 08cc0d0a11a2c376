"""A process that sends large messages one by one and notes each that was acknowledged.

python -m tests.faults.large_sender FOLDER; one that is started again goes on where it was killed.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.faults.large_app import TOPIC, LargeConfig, body

from headrace import Producer

ACKNOWLEDGED = "acknowledged"
# How many messages may be sent so far: a sender that was done early could not be killed at work.
ALLOWED = "allowed"
KEYS = 5
# Every other message is sent by a slow stream, so that a kill finds it half sent.
PAUSE_SECONDS = 0.003


def slowly(number: int) -> Iterator[bytes]:
    pause = threading.Event()
    for piece in body(number):
        pause.wait(PAUSE_SECONDS)
        yield piece


def acknowledged(folder: Path) -> int:
    """How many messages are known to be in the topic."""
    log = folder / ACKNOWLEDGED
    return log.read_bytes().count(b"\n") if log.exists() else 0


def allow(folder: Path, messages: int) -> None:
    """Let the sender go on to this many messages."""
    new = folder / f"{ALLOWED}.new"
    new.write_text(str(messages))
    new.replace(folder / ALLOWED)


def wait_allowed(folder: Path, number: int) -> None:
    pause = threading.Event()
    while number >= int((folder / ALLOWED).read_text()):
        pause.wait(PAUSE_SECONDS)


def main(folder: Path) -> None:
    config = LargeConfig.read(folder)
    settings = {
        "bootstrap.servers": config.bootstrap,
        "delivery.timeout.ms": 120_000,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
    }
    with (
        (folder / ACKNOWLEDGED).open("ab", buffering=0) as log,
        Producer(settings, large=config.large) as producer,
    ):
        for number in range(acknowledged(folder), config.messages):
            wait_allowed(folder, number)
            value = slowly(number) if number % 2 else b"".join(body(number))
            sent = producer.send(
                TOPIC, value, key=str(number % KEYS), headers={"headrace-id": str(number)}
            )
            sent.result()
            log.write(b"%d\n" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
