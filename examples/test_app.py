"""Testing an application with its handlers: pytest examples/test_app.py."""

from __future__ import annotations

from headrace import App, Backoff, Retry, Transaction
from headrace.testing import run

app = App("kafka.shop.example:9092", store="postgresql://shop@db.shop.example/shop")


@app.handler("orders", group="billing", retry=Retry(then=Backoff("1s", "10m", attempts=8)))
def bill(item: str, tx: Transaction) -> None:
    if item == "nothing":
        raise ValueError("an order of nothing")
    tx.send("receipts", f"one {item}", key=item)


def test_an_order_gets_a_receipt() -> None:
    with run(app) as world:
        world.send("orders", "tea")
        world.settle()
        assert [record.value for record in world.records("receipts")] == [b"one tea"]


def test_an_order_of_nothing_is_given_up_after_an_hour_at_most() -> None:
    with run(app) as world:
        world.send("orders", "nothing")
        world.advance("1h")
        (letter,) = world.dead_letters
        assert letter.attempts == 9
        assert letter.failure.error == "ValueError: an order of nothing"
