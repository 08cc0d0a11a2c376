"""Exactly once from topic to topic: python examples/handlers_transaction.py.

It brings its own broker.
"""

from __future__ import annotations

from headrace import App, Output, Retry
from headrace.testing import run

app = App("localhost:9092")
failed: set[int] = set()


@app.handler("numbers", once="transaction", retry=Retry(in_place=3, delay=0))
def double(number: int, out: Output) -> None:
    out.send("doubled", str(2 * number))
    if number % 3 == 0 and number not in failed:
        failed.add(number)
        raise RuntimeError("what was sent is taken back, with its offset")


with run(app) as world:
    for number in range(10):
        world.send("numbers", str(number))
    world.settle()
    print(sorted(int(record.value or b"") for record in world.records("doubled")))
