"""Jobs that go to whoever is idle: python examples/dispatch.py [HOST:PORT [TOKENS]]."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from headrace import Dispatcher

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
tokens = sys.argv[2] if len(sys.argv) > 2 else "sqlite:///dispatch-tokens.db"
dispatcher = Dispatcher(bootstrap, topic="pictures", tokens=tokens, spool="pictures.spool")


@dataclass
class Picture:
    name: str
    width: int


@dispatcher.worker
async def shrink(picture: Picture) -> Picture:
    # A large picture takes a partition for a while; the small ones take the others.
    await asyncio.sleep(picture.width / 10_000)
    return Picture(picture.name, picture.width // 2)


async def main() -> None:
    async with dispatcher:
        large = await dispatcher.submit(Picture("sea.png", 8_000))
        small = await dispatcher.submit_all(Picture(f"{n}.png", 100) for n in range(20))
        for handle in small:
            await handle
        print("small ones done, the large one is", "done" if large.done() else "still running")
        print(await large)


asyncio.run(main())
