"""An outbox without SQLAlchemy or an App: python examples/outbox_plain.py.

Then send what it wrote: headrace outbox relay --once --store sqlite:///outbox-plain.db
"""

from __future__ import annotations

import sqlite3

from headrace import outbox
from headrace.store import open_store

open_store("sqlite:///outbox-plain.db").create()

connection = sqlite3.connect("outbox-plain.db")
connection.execute("CREATE TABLE IF NOT EXISTS orders (item TEXT)")
for item in ("tea", "nonsense", "coffee"):
    # Commits, or rolls back when there is an exception: the order and its message together.
    try:
        with connection:
            connection.execute("INSERT INTO orders VALUES (?)", (item,))
            outbox.send(connection, "orders", item, id=f"order-{item}")
            if item == "nonsense":
                raise ValueError(item)
    except ValueError as refused:
        print("refused", refused)
print([row[0] for row in connection.execute("SELECT id FROM headrace_outbox ORDER BY seq")])
