"""A list at a time, and a poison message found in it: python examples/handlers_batches.py.

It brings its own broker and store.
"""

from __future__ import annotations

from headrace import App, Transaction
from headrace.testing import run

app = App("localhost:9092", store="sqlite:///shop.db")


@app.handler("clicks", group="count", batch=500, linger="200ms")
def count(pages: list[str], tx: Transaction) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS clicks (page TEXT)")
    tx.execute("INSERT INTO clicks VALUES (:page)", [{"page": page} for page in pages])
    if "poison" in pages:
        raise ValueError("a page that is none")


with run(app) as world:
    for page in ["home"] * 30 + ["poison"] + ["about"] * 10:
        world.send("clicks", page)
    world.settle()
    assert app.context.store is not None
    with app.context.store.read() as tx:
        print("counted", tx.execute("SELECT count(*) FROM clicks").scalar_one())
    print("dead letters:", [letter.message.value for letter in world.dead_letters])
