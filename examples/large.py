"""Messages larger than a record: python examples/large.py.

It brings its own broker.
"""

from __future__ import annotations

import hashlib
import io
import random

from headrace import App, Message
from headrace.testing import run

app = App("localhost:9092")


@app.handler("reports", group="archive")
def archive(report: str) -> None:
    print("archive", len(report), "characters")


@app.handler("films", group="cinema")
def show(message: Message) -> None:
    digest = hashlib.sha256()
    with message.stream() as film:
        while piece := film.read(65_536):
            digest.update(piece)
    print("show", message.key, digest.hexdigest()[:8])


film = random.Random(1).randbytes(5_000_000)

with run(app) as world:
    world.send("reports", "all is well, " * 200_000)
    world.settle()
    # A file is read while it is sent.
    world.send("films", io.BytesIO(film), key="night-train")
    world.settle()
    print("records of films:", len(world.records("films")))
    print("what was sent:", hashlib.sha256(film).hexdigest()[:8])
