"""The runner: one thread per handler, which starts a new session after an outage."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from headrace.errors import Unavailable
from headrace.handlers.execution import Execution, InTransaction
from headrace.handlers.failures import Failures, is_outage
from headrace.handlers.session import Session

if TYPE_CHECKING:
    from headrace.client.message import Message
    from headrace.handlers.context import AppContext
    from headrace.handlers.outputs import KafkaTransactions
    from headrace.handlers.scheduler import Scheduler
    from headrace.handlers.spec import HandlerSpec

# After an error of the brokers, the next session starts after this long.
RESTART_SECONDS = 1.0


class Runner:
    """Runs one handler until it is stopped; a failing consumer is replaced."""

    def __init__(self, spec: HandlerSpec, context: AppContext) -> None:
        self.spec = spec
        self.failures = Failures(
            spec,
            context.store,
            context.producer,
            context.clock,
            context.alarms,
            large_rows=context.large_rows,
        )
        self.execution = Execution(spec, context)
        self.ready = threading.Event()
        self._context = context
        self._stop = threading.Event()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._run, name=f"{spec.name}-runner", daemon=True)

    def start(self) -> None:
        """Start polling in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Ask it to stop: running messages finish within `drain`, then it commits."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end."""
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler of the present session, for tests and metrics."""
        return None if self._session is None else self._session.scheduler

    def positions(self) -> dict[tuple[str, int], int]:
        """The next offset of each assigned partition, -1 before the first record."""
        tracks = {} if self._session is None else dict(self._session.assignment.tracks)
        return {place: track.progress.next_offset for place, track in tracks.items()}

    @property
    def partitions(self) -> int:
        """How many partitions it has now."""
        return 0 if self._session is None else len(self._session.assignment.tracks)

    def execute_one(self, message: Message, also: InTransaction) -> None:
        """Run a message of the retry table, with the transactions of the current session."""
        session = self._session
        self.execute_with(None if session is None else session.transactions, message, also)

    def execute_with(
        self, transactions: KafkaTransactions | None, message: Message, also: InTransaction
    ) -> None:
        """Run a message of the retry table; only once="transaction" needs `transactions`."""
        message = self._context.large_rows.from_row(message)
        if self.spec.once == "transaction":
            if transactions is None:
                raise Unavailable(f"{self.spec.name} has no producer yet")
            transactions.run([message], {})
            with self._context.need_store("a retry").begin() as tx:
                also(tx)
        else:
            self.execution.execute_one(message, also)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._session = Session(
                    self.execution, self.failures, self._context, self._stop, self.ready
                )
                self._session.run()
            except BaseException as error:
                # Uncommitted messages are consumed again once the brokers and the store are back.
                if not is_outage(error):
                    self._context.on_fatal(error)
                    return
                name = self.spec.name
                self._context.alarms.ring(
                    "consumer-restarts", f"{name} restarts its consumer: {error}", handler=name
                )
                self._stop.wait(RESTART_SECONDS)
