"""A failed message waits for its next try and keeps its key in order: python examples/retries.py.

It brings its own broker, store and clock, so the minutes take no time.
"""

from __future__ import annotations

from headrace import App, Backoff, Retry
from headrace.testing import run

app = App("localhost:9092", store="sqlite:///shop.db")
opening = {"bank": False}


@app.handler("orders", order="key", retry=Retry(in_place=1, then=Backoff("1m", "1h", attempts=8)))
def bill(order: str) -> None:
    if order.startswith("anna") and not opening["bank"]:
        raise ConnectionError("the bank does not answer")
    print("billed", order)


with run(app) as world:
    for order in ("anna:tea", "ben:tea", "anna:coffee"):
        world.send("orders", order, key=order.partition(":")[0])
    world.advance("1s")
    for parked in world.retries:
        print("parked", parked.message.value, "after", parked.attempts, "attempts")
    opening["bank"] = True
    world.advance("2m")
