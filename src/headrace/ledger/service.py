"""One instance of a ledger service: its intake and its state owner, each in its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from headrace.client.admin.topics import admin_client
from headrace.client.clock import Clock, SystemClock
from headrace.client.settings import common_settings
from headrace.ledger.intake import Intake
from headrace.ledger.machine import LedgerMachine
from headrace.ledger.owner import StateOwner
from headrace.ledger.restart_loop import RestartLoop
from headrace.ledger.stats import LedgerStats
from headrace.ledger.topics import INPUT_PARTITIONS, STATE_PARTITIONS, ensure_topics
from headrace.telemetry.alarms import Alarms

STOP_SECONDS = 30.0
READY_CHECK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """How many partitions new topics get, and where the cache is stored."""

    input_partitions: int = INPUT_PARTITIONS
    state_partitions: int = STATE_PARTITIONS
    # None for the system's folder of temporary files.
    cache_dir: Path | None = None


class LedgerService:
    """Run as many instances as you like, on any machines: they share the work.

    `settings` are client settings by Kafka's names, including `bootstrap.servers`.
    """

    def __init__(
        self,
        machine: LedgerMachine,
        settings: Mapping[str, Any],
        *,
        clock: Clock | None = None,
        alarms: Alarms | None = None,
        options: LedgerOptions | None = None,
    ) -> None:
        self.name = machine.name
        self.stats = LedgerStats()
        self._settings = settings
        self._options = options or LedgerOptions()
        clock, alarms = clock or SystemClock(), alarms or Alarms()
        # A new one for each run: an abandoned run must not touch the next.
        self._new_intake = partial(Intake, machine, settings, clock, self.stats)
        self._new_owner = partial(
            StateOwner, machine, settings, clock, alarms, self.stats, self._options.cache_dir
        )
        self._intake, self._owner = self._new_intake(), self._new_owner()
        self._making_topics = threading.Lock()
        self._has_topics = False
        self._loops = (
            RestartLoop(f"headrace-{machine.name}-intake", self._run_intake),
            RestartLoop(f"headrace-{machine.name}-owner", self._run_owner),
        )

    def start(self) -> None:
        """Start working as soon as the brokers are there; returns at once."""
        for loop in self._loops:
            loop.start()

    def stop(self) -> None:
        """Finish the current transactions, leave the groups, and stop."""
        for loop in self._loops:
            loop.ask_to_stop()
        for loop in self._loops:
            loop.stop(STOP_SECONDS)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until `is_ready`; returns False on a timeout."""
        give_up_at = time.monotonic() + timeout_s
        while not self.is_ready:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(READY_CHECK_SECONDS)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether both groups are joined and all owned partitions are read to their end."""
        return (
            self._intake.ready.is_set()
            and self._owner.ready.is_set()
            and self.stats.caught_up == self.stats.owned
        )

    def _run_intake(self, stopping: threading.Event) -> None:
        self._intake = intake = self._new_intake()
        intake.run(stopping, self._new_admin())

    def _run_owner(self, stopping: threading.Event) -> None:
        self._owner = owner = self._new_owner()
        owner.run(stopping, self._new_admin())

    def _new_admin(self) -> AdminClient:
        """An admin client for one run; the first call creates the topics.

        Not shared between runs: after a broker crash, librdkafka may keep an old leader forever.
        """
        admin = admin_client(common_settings(self._settings))
        options = self._options
        with self._making_topics:
            if not self._has_topics:
                ensure_topics(admin, self.name, options.input_partitions, options.state_partitions)
                self._has_topics = True
        return admin
