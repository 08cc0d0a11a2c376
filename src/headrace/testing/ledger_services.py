"""The delay and half services of an application under test, on the test's own clock."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.ledger.delay.service import delay_service
from headrace.ledger.half.service import half_service
from headrace.ledger.machine import NEVER_MS
from headrace.ledger.service import LedgerOptions, LedgerService
from headrace.ledger.topics import ServiceTopics
from headrace.telemetry.alarms import Alarms
from headrace.testing.broker_thread import BrokerThread
from headrace.testing.clock import VirtualClock

_MAKERS = {"delay": delay_service, "half": half_service}
# A single instance has no partitions to share.
OPTIONS = LedgerOptions(state_partitions=1)


class LedgerServices:
    """Starts each service when its topic exists, as `headrace up` does."""

    def __init__(self, broker: BrokerThread, clock: VirtualClock, alarms: Alarms) -> None:
        self._broker = broker
        self._clock = clock
        self._alarms = alarms
        self._running: dict[str, LedgerService] = {}

    def start_needed(self) -> None:
        """Start the services whose topic exists by now."""
        topics = self._broker.broker.node.catalog.topics
        for name, make in _MAKERS.items():
            if name not in self._running and ServiceTopics(name).input in topics:
                settings = {"bootstrap.servers": self._broker.bootstrap, "log_level": 0}
                service = make(settings, clock=self._clock, alarms=self._alarms, options=OPTIONS)
                self._running[name] = service
                service.start()

    def stop(self) -> None:
        """Stop all services."""
        while self._running:
            self._running.popitem()[1].stop()

    @property
    def topics(self) -> list[str]:
        """The topics that the services read."""
        return [
            topic
            for name, service in self._running.items()
            if service.is_ready
            for topic in (ServiceTopics(name).input, ServiceTopics(name).state)
        ]

    def positions(self) -> dict[tuple[str, int], int]:
        """How far the services have read."""
        found: dict[tuple[str, int], int] = {}
        for service in self._running.values():
            found |= service.stats.positions
        return found

    def work(self) -> list[str]:
        """The services that have something to do now, in words."""
        return [
            f"the {name} service is at work"
            for name, service in self._running.items()
            if not service.is_ready or self._is_due(service)
        ]

    def due_ms(self) -> Iterable[int]:
        """In how many milliseconds the next deliveries or checks are due."""
        dues = (service.stats.first_due_ms for service in self._running.values())
        return [due - self._clock.now_ms() for due in dues if due is not None and due < NEVER_MS]

    def _is_due(self, service: LedgerService) -> bool:
        due_ms = service.stats.first_due_ms
        return due_ms is not None and due_ms <= self._clock.now_ms()
