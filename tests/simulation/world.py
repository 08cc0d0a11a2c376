"""A world of processes in virtual time, in which one seed decides everything.

A process is an event loop: whatever it schedules is run by the world, one callback at a time, in
the order of virtual time. To kill a process is to run nothing of it any more; to freeze it is to
run it later. Real asyncio code (the whole broker) runs in it unchanged, as long as it gets its
threads, its clock and its sockets from here.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.message_text import words

T = TypeVar("T")

# More callbacks than this mean that something goes round in circles.
STEPS_MAX = 400_000
SECOND_US = 1_000_000
# How long a call on another thread takes, from its start to its end.
THREAD_US = (5, 2_000)


class Stuck(AssertionError):
    """Something that had to happen has not happened."""


class Handle:
    """A callback that will run, unless it is called off or its process dies before."""

    __slots__ = ("args", "callback", "process", "when_us")

    def __init__(
        self, process: Process, callback: Callable[..., object], args: tuple[Any, ...], when_us: int
    ) -> None:
        self.process = process
        self.callback: Callable[..., object] | None = callback
        self.args = args
        self.when_us = when_us

    def cancel(self) -> None:
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        return self.when_us / SECOND_US


class World:
    """Virtual time, chance, and everything that is going to happen."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.now_us = 0
        self.steps = 0
        self._order = count()
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[int, int, Handle]] = []
        self._trace: list[tuple[int, str, str, tuple[object, ...]]] = []
        self._processes: list[Process] = []

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    # Chance.

    def happens(self, probability: float) -> bool:
        """Whether something happens that happens with this probability."""
        return self.chance.random() < probability

    def between(self, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        return least + int(self.chance.random() * (most - least + 1))

    def urandom(self, size: int) -> bytes:
        """What the operating system would call random."""
        return self.chance.randbytes(size)

    # Running.

    def soon(self, handle: Handle) -> None:
        self._ready.append(handle)

    def later(self, handle: Handle) -> None:
        heapq.heappush(self._timers, (handle.when_us, next(self._order), handle))

    def run(self, process: Process, main: Coroutine[Any, Any, T]) -> T:
        """Let the world go on until `main`, run in `process`, is over; returns what it returns."""
        ended = process.create_task(main)
        ready, timers = self._ready, self._timers
        outer = asyncio._get_running_loop()
        running: Process | None = None
        try:
            while not ended.done():
                if ready:
                    handle = ready.popleft()
                elif timers:
                    due_us, _, handle = heapq.heappop(timers)
                    if due_us > self.now_us:
                        self.now_us = due_us
                else:
                    raise Stuck("nothing is going to happen any more")
                callback = handle.callback
                owner = handle.process
                if callback is None or not owner.alive:
                    continue
                if owner.frozen_until_us > self.now_us:
                    handle.when_us = owner.frozen_until_us
                    self.later(handle)
                    continue
                self.steps += 1
                if self.steps > STEPS_MAX:
                    raise Stuck(f"{STEPS_MAX} steps and no end")
                if owner is not running:
                    running = owner
                    asyncio._set_running_loop(owner)
                callback(*handle.args)
        finally:
            asyncio._set_running_loop(outer)
        return ended.result()

    def add(self, process: Process) -> None:
        self._processes.append(process)

    def end(self) -> None:
        """Bury everybody, so that nothing is left for the garbage collector to wake up."""
        outer = asyncio._get_running_loop()
        hook = sys.unraisablehook
        # Some insist on cleaning up, in a world that is no more.
        sys.unraisablehook = lambda _: None
        for process in self._processes:
            process.alive = False
            process.on_death.clear()
            asyncio._set_running_loop(process)
            process.bury()
        asyncio._set_running_loop(outer)
        sys.unraisablehook = hook
        self._processes.clear()
        self._timers.clear()
        self._ready.clear()

    # Telling.

    def tell(self, who: str, what: str, *details: object) -> None:
        """Note something for the trace; details are put into words only when it is printed."""
        self._trace.append((self.now_us, who, what, details))

    def story(self, last: int | None = None) -> str:
        """The trace in words, one line an event."""
        lines = []
        for now_us, who, what, details in self._trace if last is None else self._trace[-last:]:
            told = " ".join((what, *map(words, details)))
            lines.append(f"{now_us / SECOND_US:11.6f} {who:<12} {told}")
        return "\n".join(lines)


# Of an event loop's forty methods most are never called here, so it is none for type checkers.
if TYPE_CHECKING:
    EventLoop: Any = object
else:
    EventLoop = asyncio.AbstractEventLoop


class Process(EventLoop):  # type: ignore[misc]
    """One process: an event loop that the world runs.

    Only what asyncio's tasks, futures, locks and timeouts need is here, and what the broker asks
    of a loop; contexts of callbacks are ignored, for nothing here has context variables.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen_until_us = 0
        # Told of the death, to hang up on behalf of the process.
        self.on_death: list[Callable[[], None]] = []
        # What `create_server` registered; the network looks here.
        self.listener: Callable[[], asyncio.BaseProtocol] | None = None
        # Slows down every call that is made on another thread (a sync, a cold read).
        self.thread_us = THREAD_US
        self._tasks: list[asyncio.Task[Any]] = []
        world.add(self)

    def kill(self) -> None:
        """End it at once: nothing that it scheduled happens any more."""
        self.alive = False
        self.listener = None
        for told in self.on_death:
            told()
        self.on_death.clear()

    def freeze(self, ms: int) -> None:
        """Stop it for a while (SIGSTOP, a long collection of garbage); then it goes on."""
        self.frozen_until_us = max(self.frozen_until_us, self.world.now_us + ms * 1000)

    # What asyncio and the broker use of a loop.

    def time(self) -> float:
        return self.world.now_us / SECOND_US

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return not self.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Complaints about what a killed process left unfinished; nobody is there to hear them."""

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        handle = Handle(self, callback, args, 0)
        if self.alive:
            self.world.soon(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.after_us(round(delay * SECOND_US), callback, *args)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return self.after_us(round(when * SECOND_US) - self.world.now_us, callback, *args)

    def after_us(self, delay_us: int, callback: Callable[..., object], *args: Any) -> Handle:
        """Call back after this many microseconds."""
        handle = Handle(self, callback, args, self.world.now_us + max(delay_us, 0))
        if self.alive:
            self.world.later(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **_: Any
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self)
        self._tasks.append(task)
        return task

    def bury(self) -> None:
        """Close the coroutines that will never go on; what they try to do on the way is in vain."""
        for task in self._tasks:
            while not task.done():
                coroutine = task.get_coro()
                try:
                    coroutine.close()
                except Exception:
                    continue
                break
        self._tasks.clear()

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> Any:
        """Do it at some moment of the time it takes; the answer comes at the end of that time."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self.after_us(self.thread_delay_us(), fail, error)
            else:
                self.after_us(self.thread_delay_us(), succeed, result)

        def succeed(result: T) -> None:
            if not future.done():
                future.set_result(result)

        def fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)

        self.after_us(self.thread_delay_us(), work)
        return future

    def thread_delay_us(self) -> int:
        least, most = self.thread_us
        # Mostly short, sometimes long.
        return least + int((most - least) * self.world.chance.random() ** 3)

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        self.listener = protocol_factory
        return Listener(self)


class Listener:
    """What a process gets for listening: as much of `asyncio.Server` as a broker uses."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def sockets(self) -> Iterable[Any]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return "broker", 9092

    def close(self) -> None:
        self._process.listener = None


class Threads:
    """A pool of threads whose work is done by the world; stands in for ThreadPoolExecutor."""

    def __init__(self, *_: object, **__: object) -> None:
        process = asyncio.get_running_loop()
        assert isinstance(process, Process)
        self._process = process

    def submit(self, function: Callable[..., object], *args: Any) -> None:
        """Do it after some time; what it has to say it posts to the loop itself."""
        self._process.after_us(self._process.thread_delay_us(), function, *args)

    def shutdown(self, wait: bool = True) -> None:
        """Nothing is left to stop."""
