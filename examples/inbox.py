"""A repeated message has one effect: python examples/inbox.py [HOST:PORT]."""

from __future__ import annotations

import sys

from headrace.client.producer import Producer
from headrace.handlers import App
from headrace.store import Transaction, open_store

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
store = open_store("sqlite:///inbox-example.db")
store.create()
with store.begin() as tx:
    tx.execute("CREATE TABLE IF NOT EXISTS payments (amount INTEGER)")

with Producer(bootstrap) as producer:
    for amount, id in ((10, "payment-1"), (10, "payment-1"), (5, "payment-2")):
        producer.send("payments", str(amount), headers={"headrace-id": id}, partition=0)

app = App(bootstrap, store=store)


@app.handler("payments", group="books", start="earliest", order="partition")
def pay(amount: int, tx: Transaction) -> None:
    # The inbox row and this one are committed together.
    tx.execute("INSERT INTO payments VALUES (:amount)", {"amount": amount})
    if amount == 5:
        app.request_stop()


app.run()
with store.read() as tx:
    print("paid", tx.execute("SELECT sum(amount) FROM payments").scalar_one())
print(store.inbox.find("payment-1")[0].consumer)
