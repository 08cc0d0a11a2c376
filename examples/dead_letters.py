"""What cannot be handled is kept, looked at and replayed: python examples/dead_letters.py.

It brings its own broker and store. In production: headrace dlq list, show, replay, discard.
"""

from __future__ import annotations

from headrace import App, Transaction
from headrace.testing import run

app = App("localhost:9092", store="sqlite:///shop.db")
prices = {"tea": 3}


@app.handler("orders")
def bill(item: str, tx: Transaction) -> None:
    print("billed", item, prices[item])


with run(app) as world:
    for item in ("tea", "coffee"):
        world.send("orders", item, headers={"headrace-id": f"order-{item}"})
    world.settle()
    (letter,) = world.dead_letters
    print(letter.message.id, "failed:", letter.failure.error, "in", letter.failure.place)
    print(world.records("orders.dlq")[0].value)
    prices["coffee"] = 4
    world.replay(letter.failure.fingerprint)
    world.settle()
