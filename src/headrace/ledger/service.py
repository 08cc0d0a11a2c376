"""A service on a ledger: its intake and its keeper, each in a thread of its own."""

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
from headrace.ledger.keeper import Keeper
from headrace.ledger.lives import Lives
from headrace.ledger.machine import Machine
from headrace.ledger.stats import Stats
from headrace.ledger.topics import INPUT_PARTITIONS, STATE_PARTITIONS, ensure_topics
from headrace.telemetry.alarms import Alarms

STOP_SECONDS = 30.0
LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class LedgerOptions:
    """How the topics are made, and where the cache lies."""

    input_partitions: int = INPUT_PARTITIONS
    state_partitions: int = STATE_PARTITIONS
    # None for the system's folder for temporary files.
    cache_dir: Path | None = None


class LedgerService:
    """One instance; start several, in processes or machines of their own, and they share.

    `settings` are client settings by Kafka's names, `bootstrap.servers` among them.
    """

    def __init__(
        self,
        machine: Machine,
        settings: Mapping[str, Any],
        *,
        clock: Clock | None = None,
        alarms: Alarms | None = None,
        options: LedgerOptions | None = None,
    ) -> None:
        self.name = machine.name
        self.stats = Stats()
        self._settings = settings
        self._options = options or LedgerOptions()
        clock, alarms = clock or SystemClock(), alarms or Alarms()
        # A new one for each life: what a stuck one still does must not touch the next.
        self._new_intake = partial(Intake, machine, settings, clock, self.stats)
        self._new_keeper = partial(
            Keeper, machine, settings, clock, alarms, self.stats, self._options.cache_dir
        )
        self._intake, self._keeper = self._new_intake(), self._new_keeper()
        self._making = threading.Lock()
        self._has_topics = False
        self._lives = (
            Lives(f"headrace-{machine.name}-intake", self._take_in),
            Lives(f"headrace-{machine.name}-keeper", self._keep),
        )

    def start(self) -> None:
        """Begin, as soon as the brokers are there; returns at once."""
        for lives in self._lives:
            lives.start()

    def stop(self) -> None:
        """Finish the transactions at hand, leave the groups, end."""
        for lives in self._lives:
            lives.ask_to_stop()
        for lives in self._lives:
            lives.stop(STOP_SECONDS)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the groups are joined and what was there has been read."""
        give_up_at = time.monotonic() + timeout_s
        while not self.is_ready:
            if time.monotonic() > give_up_at:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    @property
    def is_ready(self) -> bool:
        """Whether the groups are joined and all partitions that are owned are read."""
        return (
            self._intake.ready.is_set()
            and self._keeper.ready.is_set()
            and self.stats.caught_up == self.stats.owned
        )

    def _take_in(self, stopping: threading.Event) -> None:
        self._intake = intake = self._new_intake()
        intake.live(stopping, self._new_admin())

    def _keep(self, stopping: threading.Event) -> None:
        self._keeper = keeper = self._new_keeper()
        keeper.live(stopping, self._new_admin())

    def _new_admin(self) -> AdminClient:
        """An admin client for one life; the first makes the topics.

        For one only: after brokers have died, librdkafka may believe in an old leader for ever.
        """
        admin = admin_client(common_settings(self._settings))
        options = self._options
        with self._making:
            if not self._has_topics:
                ensure_topics(admin, self.name, options.input_partitions, options.state_partitions)
                self._has_topics = True
        return admin
