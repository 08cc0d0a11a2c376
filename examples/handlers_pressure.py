"""More than a handler can take: python examples/handlers_pressure.py.

It brings its own broker and store.
"""

from __future__ import annotations

import threading

from headrace import App
from headrace.testing import run

app = App("localhost:9092", store="sqlite:///shop.db")
is_open = threading.Event()
stored: list[int] = []


@app.handler("orders", order="none", workers=(1, 4), pressure="spill", buffer_messages=20)
def store(order: int) -> None:
    is_open.wait(20)
    stored.append(order)


with run(app) as world:
    for order in range(300):
        world.send("orders", str(order))
    while not world.alarms:
        is_open.wait(0.01)
    print(world.alarms[0].text)
    is_open.set()
    world.settle()
    print("stored", len(set(stored)))
