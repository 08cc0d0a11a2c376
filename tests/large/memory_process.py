"""A process that sends or reads one large message and says how much memory it took at most.

python -m tests.large.memory_process send|handle|consume BOOTSTRAP TOPIC BYTES
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from headrace import App, Consumer, Large, Message, Producer

PIECE_BYTES = 1 << 20


def pieces(size: int) -> Iterator[bytes]:
    """Bytes that cannot be compressed, always the same."""
    chance = random.Random(1)
    left = size
    while left:
        yield chance.randbytes(min(left, PIECE_BYTES))
        left -= min(left, PIECE_BYTES)


def digest_of(stream: IO[bytes]) -> str:
    whole = hashlib.sha256()
    while piece := stream.read(PIECE_BYTES):
        whole.update(piece)
    return whole.hexdigest()


def peak_kbytes() -> int:
    """The most that was resident since the program began."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1])


def send(bootstrap: str, topic: str, size: int) -> str:
    with Producer(bootstrap, large=Large()) as producer:
        producer.send(topic, pieces(size), key="k").result(60)
    return "sent"


def consume(bootstrap: str, topic: str, _size: int) -> str:
    with Consumer(bootstrap, start="earliest", large=Large()) as consumer:
        consumer.assign(topic)
        record = None
        while record is None:
            record = consumer.poll(5)
        with record.stream() as stream:
            return digest_of(stream)


def handle(bootstrap: str, topic: str, _size: int) -> str:
    app = App(bootstrap)
    found: list[str] = []
    is_done = threading.Event()

    @app.handler(topic, group="memory")
    def read(message: Message) -> None:
        with message.stream() as stream:
            found.append(digest_of(stream))
        is_done.set()

    with app:
        is_done.wait()
    return found[0]


if __name__ == "__main__":
    _, verb, bootstrap, topic, size = sys.argv
    work = {"send": send, "consume": consume, "handle": handle}[verb]
    print(work(bootstrap, topic, int(size)), peak_kbytes())
