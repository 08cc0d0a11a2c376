"""Order by key, many keys at once on one partition: python examples/handlers_order.py.

It brings its own broker.
"""

from __future__ import annotations

import time
from collections import defaultdict

from headrace import App, Message
from headrace.testing import run

app = App("localhost:9092")
seen: defaultdict[bytes | None, list[int]] = defaultdict(list)


@app.handler("steps", order="key", lanes=32)
def step(number: int, message: Message) -> None:
    time.sleep(0.005)
    seen[message.key].append(number)


with run(app) as world:
    for number in range(400):
        world.send("steps", str(number), key=f"worker-{number % 20}")
    begun = time.monotonic()
    world.settle()
    seconds = time.monotonic() - begun

print("every key in order:", all(numbers == sorted(numbers) for numbers in seen.values()))
print("sooner than one after the other:", seconds < 400 * 0.005)
