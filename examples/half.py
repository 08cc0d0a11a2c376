"""A message that is seen only if its order was stored: python examples/half.py [HOST:PORT].

A half service has to run: `headrace up` has one, or `headrace service half` beside any Kafka.
"""

from __future__ import annotations

import asyncio
import sys

from headrace import App

app = App(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
stored: set[str] = set()  # stands for a database
seen: list[str] = []


@app.half_checker("shop")
def is_stored(item: str) -> bool:
    """Asked, in any running process of the shop, about a sender that died undecided."""
    return item in stored


@app.handler("orders", group="kitchen", start="earliest")
def cook(item: str) -> None:
    seen.append(item)


async def main() -> None:
    async with app.half("orders", "tea"):
        stored.add("tea")  # the local transaction
    try:
        async with app.half("orders", "coffee"):
            raise LookupError("no coffee left")
    except LookupError as problem:
        print("not sold:", problem)
    # This sender dies after its local transaction, so nobody commits: the checker decides.
    await app.half("orders", "milk", check_after="2s").__aenter__()
    stored.add("milk")
    while len(seen) < 2:
        await asyncio.sleep(0.05)


with app:
    asyncio.run(main())
print("seen:", *sorted(seen))
