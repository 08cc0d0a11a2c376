"""Only the current state matters: python examples/handlers_latest.py.

It brings its own broker.
"""

from __future__ import annotations

import threading

from headrace import App
from headrace.testing import run

app = App("localhost:9092")
prices = {"tea": 3}
is_painting, is_dry = threading.Event(), threading.Event()


@app.handler("price-changes", order="latest")
def refresh(item: str) -> None:
    # It is told which key has changed, and fetches the state.
    print("the shop window says", prices[item])
    is_painting.set()
    is_dry.wait(20)


with run(app) as world:
    world.send("price-changes", "changed", key="tea")
    is_painting.wait(20)
    for prices["tea"] in (4, 5, 6):
        world.send("price-changes", "changed", key="tea")
    is_dry.set()
    world.settle()
