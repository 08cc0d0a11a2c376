"""The services that `headrace service` runs, by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.clock import Clock, SystemClock
from headrace.errors import HandlerError
from headrace.handlers.context import AppContext
from headrace.telemetry.alarms import Alarms

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.retries import Execute
    from headrace.handlers.runner import Runner
    from headrace.ledger.half.machine import HalfLimits
    from headrace.ledger.service import LedgerOptions

JOIN_SECONDS = 30.0


class Service(Protocol):
    """Works until it is stopped, through outages of the brokers; instances share the work."""

    def start(self) -> None:
        """Begin; returns at once."""
        ...

    def stop(self) -> None:
        """Finish the current step, and leave the rest to the other instances."""
        ...


@dataclass(frozen=True, kw_only=True)
class ServiceOptions:
    """The options of all services; each uses what it needs."""

    # Client settings by Kafka's names, `bootstrap.servers` among them.
    settings: Mapping[str, Any]
    clock: Clock = field(default_factory=SystemClock)
    alarms: Alarms = field(default_factory=Alarms)
    ledger: LedgerOptions | None = None
    half: HalfLimits | None = None
    store_url: str | None = None
    app: App | None = None
    lag_config: Path | None = None


def make_service(name: str, options: ServiceOptions) -> Service:
    """A service by its name; HandlerError if an option that it needs is missing."""
    return _MAKERS[name](options)


def _delay(options: ServiceOptions) -> Service:
    from headrace.ledger.delay.service import delay_service

    return delay_service(
        options.settings, clock=options.clock, alarms=options.alarms, options=options.ledger
    )


def _half(options: ServiceOptions) -> Service:
    from headrace.ledger.half.service import half_service

    return half_service(
        options.settings,
        clock=options.clock,
        alarms=options.alarms,
        options=options.ledger,
        limits=options.half,
    )


def _lag(options: ServiceOptions) -> Service:
    from headrace.lag.rules import RulesError, read_config
    from headrace.lag.service import LagService

    config = None
    if options.lag_config is not None:
        try:
            config = read_config(options.lag_config)
        except RulesError as error:
            raise HandlerError(error.message, error.hint) from None
    settings = _context(options).settings
    address = {"bootstrap.servers": options.settings["bootstrap.servers"]}
    return LagService(
        {**address, **settings}, config=config, clock=options.clock, alarms=options.alarms
    )


def _relay(options: ServiceOptions) -> Service:
    if options.store_url is None:
        raise HandlerError("relay needs the store with the outbox", "--store sqlite:///shop.db")
    return _Threads(options, _relay_jobs)


def _retry(options: ServiceOptions) -> Service:
    if options.app is None:
        raise HandlerError("retry runs handlers, so it needs their app", "--app shop:app")
    return _Threads(options, _retry_jobs)


_MAKERS: dict[str, Callable[[ServiceOptions], Service]] = {
    "delay": _delay,
    "half": _half,
    "relay": _relay,
    "retry": _retry,
    "lag": _lag,
}
NAMES = tuple(_MAKERS)

Job = Callable[[threading.Event], object]


class _Threads:
    """Functions that run until an event is set, each in a thread of its own."""

    def __init__(
        self, options: ServiceOptions, jobs: Callable[[ServiceOptions, ExitStack], Sequence[Job]]
    ) -> None:
        self._options = options
        self._jobs = jobs
        self._stop = threading.Event()
        self._stack = ExitStack()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Open what the jobs need, and start them."""
        for job in self._jobs(self._options, self._stack):
            thread = threading.Thread(target=job, args=(self._stop,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Let each finish its step, and close what they used."""
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_SECONDS)
        self._stack.close()


def _context(options: ServiceOptions) -> AppContext:
    given = dict(options.settings)
    return AppContext(bootstrap=given.pop("bootstrap.servers"), given=given, clock=options.clock)


def _relay_jobs(options: ServiceOptions, stack: ExitStack) -> Sequence[Job]:
    from headrace.outbox.confirmations import ConfirmationReader
    from headrace.outbox.relay import Relay
    from headrace.store import open_store

    assert options.store_url is not None
    context = _context(options)
    context.store = open_store(options.store_url, clock=options.clock)
    context.store.create()
    stack.callback(context.close)
    relay = Relay(context.store, context.producer, switches=context, alarms=options.alarms)
    settings = {"bootstrap.servers": context.bootstrap, **context.settings}
    return [relay.run, ConfirmationReader(context.store, settings).run]


def _retry_jobs(options: ServiceOptions, stack: ExitStack) -> Sequence[Job]:
    from headrace.handlers.runner import Runner

    app = options.app
    assert app is not None
    stack.callback(app.stop)
    context = app.context
    context.need_store("retry").create()
    return [_retry_job(Runner(spec, context), context, stack) for spec in app.handlers.values()]


def _retry_job(runner: Runner, context: AppContext, stack: ExitStack) -> Job:
    from headrace.handlers.outputs import KafkaTransactions
    from headrace.handlers.retries import RetryJob

    store = context.need_store("retry")
    execute: Execute = runner.execute_one
    if runner.spec.once == "transaction":
        # The runner's own transactions belong to its consumer, which does not run here.
        transactions = KafkaTransactions(runner.execution, context)
        stack.callback(transactions.close)
        execute = partial(runner.execute_with, transactions)
    job = RetryJob(runner.spec.name, store, runner.failures, context.clock, execute)

    def run(stop: threading.Event) -> None:
        def end() -> None:
            stop.wait()
            job.stop()

        threading.Thread(target=end, daemon=True).start()
        job.run()

    return run
