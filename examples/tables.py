"""A compacted topic as a dictionary: python examples/tables.py.

It brings its own broker.
"""

from __future__ import annotations

from headrace import App
from headrace.testing import run

app = App("localhost:9092")
prices = app.table("prices", value=int)


@app.handler("orders")
def bill(item: str) -> None:
    print(item, "costs", prices.get(item, "nothing yet"))


with run(app) as world:
    world.send("prices", "3", key="tea")
    world.send("prices", "4", key="tea")
    world.settle()
    world.send("orders", "tea")
    world.settle()
    world.send("prices", None, key="tea")
    world.settle()
    world.send("orders", "tea")
    world.settle()
