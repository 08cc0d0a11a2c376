"""Handlers and their messages: python examples/handlers.py.

It brings its own broker.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from headrace import App, Message
from headrace.testing import run


class Order(msgspec.Struct):
    item: str
    amount: int = 1


@dataclass
class Payment:
    cents: int


app = App("localhost:9092")


@app.handler("orders", group="billing")
def bill(order: Order) -> None:
    print("bill", order.amount, order.item)


@app.handler("payments", group="books")
async def book(payment: Payment, message: Message) -> None:
    print("book", payment.cents, "of", message.source)


with run(app) as world:
    world.send("orders", Order("tea", 2))
    world.settle()
    world.send("payments", '{"cents": 700}')
    world.settle()
