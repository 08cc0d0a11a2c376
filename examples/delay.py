"""A reminder in a quarter of an hour, unless it is cancelled: python examples/delay.py.

It brings its own broker, service and clock, so the minutes take no time.
"""

from __future__ import annotations

from headrace import App
from headrace.testing import run

app = App("localhost:9092")


@app.handler("reminders", group="mail")
def remind(customer: str) -> None:
    print("still interested,", customer)


with run(app) as world:
    for customer in ("anna", "ben", "carl"):
        app.send("reminders", customer, headers={"headrace-id": f"cart-{customer}"}, after="15m")
    world.advance("10m")
    print("ben has paid")
    app.cancel_delayed("cart-ben").result(30)
    app.send("reminders", "carl", headers={"headrace-id": "cart-carl"}, after="1h").result(30)
    world.advance("5m")
    print("an hour later")
    world.advance("1h")
