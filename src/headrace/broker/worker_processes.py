"""Worker processes for CPU-bound work (compaction, recompression), so that no request waits for it.

A worker runs this file as a script: it imports nothing of the package until a job names it, and,
unlike multiprocessing's start methods, never imports the parent's `__main__` (an application that
runs a broker in-process need not be written for that). Jobs and results are pickles, each after its
length, on the worker's standard input and output.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

NICENESS = 10

_length = struct.Struct("<Q")


class WorkerError(Exception):
    """A job did not finish: its worker was killed, crashed, or is shutting down."""


class WorkerProcesses:
    """Up to `processes` niced worker processes, each started by the first job that needs it."""

    def __init__(self, processes: int = 1):
        self._limit = asyncio.Semaphore(processes)
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        # One thread per worker; it only waits on the worker's pipes.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="headrace-worker")
        self._closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a module-level function in a worker; exceptions are raised here.

        If its worker dies, the job fails with WorkerError and is not tried again; the worker is
        replaced. On cancel the worker is killed, so the job stops at once.
        """
        job = pickle.dumps((function, args, kwargs), pickle.HIGHEST_PROTOCOL)
        async with self._limit:
            if self._closed:
                raise WorkerError("the worker processes are stopped")
            worker = self._idle.pop() if self._idle else _Worker()
            self._busy.add(worker)
            loop = asyncio.get_running_loop()
            answer = loop.run_in_executor(self._threads, worker.call, job)
            try:
                succeeded, value = await asyncio.shield(answer)
            except BaseException:
                worker.kill()
                answer.add_done_callback(_ignore)
                raise
            finally:
                self._busy.discard(worker)
            self._idle.append(worker)
        if not succeeded:
            raise value
        return value  # type: ignore[no-any-return]

    @property
    def busy(self) -> int:
        """Jobs under way."""
        return len(self._busy)

    def pids(self) -> list[int]:
        """Process ids of the live workers, for metrics and for fault tests."""
        return [worker.pid for worker in (*self._idle, *self._busy) if worker.alive]

    async def close(self) -> None:
        """Stop every worker; jobs under way fail with WorkerError."""
        self._closed = True
        for worker in self._busy:
            worker.kill()
        idle, self._idle = self._idle, []
        loop = asyncio.get_running_loop()
        for worker in idle:
            await loop.run_in_executor(None, worker.reap)
        await loop.run_in_executor(None, self._threads.shutdown)


class _Worker:
    """One child process. Only one thread at a time may call it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._killed = False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else -1

    def call(self, job: bytes) -> tuple[bool, Any]:
        """Send one job and wait for its answer: (succeeded, value or exception)."""
        try:
            process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, job)
            answer = _receive(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise WorkerError(f"the worker process ended in the middle of a job ({self.reap()})")
        return pickle.loads(answer)  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Kill the process; the thread in `call` then reaps it."""
        with self._lock:
            self._killed = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        # Starting happens in the worker's thread, off the event loop; the lock keeps a kill that
        # comes at the same time from missing the new process.
        with self._lock:
            if self._killed:
                raise BrokenPipeError("the worker process was stopped")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
                assert self._process.stdin is not None
                _send(self._process.stdin, pickle.dumps((sys.path, NICENESS)))
            return self._process

    def reap(self) -> str:
        """Kill the process, wait for it, close its pipes, and return how it ended."""
        self.kill()
        process = self._process
        if process is None:
            return "it was never started"
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # Closing flushes a job that was half sent; the reader is gone.
                with contextlib.suppress(OSError):
                    pipe.close()
        return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Take the exception of an abandoned job, so that the loop does not report it as lost."""
    if not answer.cancelled():
        answer.exception()


def _send(stream: IO[bytes], payload: bytes) -> None:
    stream.write(_length.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """One payload, or None at the end of the stream."""
    head = stream.read(_length.size)
    if len(head) < _length.size:
        return None
    (length,) = _length.unpack(head)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def _read_jobs(stream: IO[bytes], jobs: queue.SimpleQueue[bytes]) -> None:
    """Feed jobs to the main thread; exit at once, even during a job, when the parent is gone.

    A parent killed with -9 closes the pipe but sends no signal; a worker that continued would
    write into a data folder that the next broker has already opened.
    """
    while (job := _receive(stream)) is not None:
        jobs.put(job)
    os._exit(0)


def serve(source: IO[bytes], sink: IO[bytes]) -> None:
    """Read the path and niceness, then run jobs until the parent is gone."""
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(source, jobs), daemon=True).start()
    sys.path[:], niceness = pickle.loads(jobs.get())
    os.nice(niceness)
    while True:
        try:
            function, args, kwargs = pickle.loads(jobs.get())
            payload = pickle.dumps((True, function(*args, **kwargs)), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            payload = _failure(error)
        _send(sink, payload)


def _failure(error: Exception) -> bytes:
    try:
        payload = pickle.dumps((False, error), pickle.HIGHEST_PROTOCOL)
        pickle.loads(payload)  # Many exceptions pickle but cannot be unpickled.
    except Exception:
        payload = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
    return payload


def main() -> None:
    """Run as a script, with the pipes moved away so that a stray print cannot spoil them."""
    # Ctrl-C reaches the whole process group; the parent decides when its workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve(source, sink)


if __name__ == "__main__":
    main()
