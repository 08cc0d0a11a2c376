"""A message sent with the change it tells of: python examples/outbox.py [HOST:PORT]."""

from __future__ import annotations

import sys

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from headrace import outbox
from headrace.client.producer import Producer
from headrace.outbox.relay import Relay
from headrace.store import open_store

URL = "sqlite:///outbox-example.db"
store = open_store(URL)
store.create()
engine = create_engine(URL)

# Your web application: its own session, its own transaction, and one line more.
with Session(engine) as session, session.begin():
    session.execute(text("CREATE TABLE IF NOT EXISTS orders (item TEXT)"))
    session.execute(text("INSERT INTO orders VALUES ('tea')"))
    id = outbox.send(session, "orders", {"item": "tea"}, key="tea", confirm_by=["billing"])

# The relay: `headrace outbox relay`, or inside every App with a store.
with Producer(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092") as producer:
    relay = Relay(store, producer)
    print("sent", relay.step())
    relay.close()

# A consumer confirms: a Headrace handler by itself, others in `headrace.confirm` or by HTTP.
print("confirmed", store.outbox.confirm([(id, "billing")]))
print(store.outbox.counts())
