"""The lag service: measures all groups at intervals and notifies people when one is behind."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from headrace.client.clock import Clock, SystemClock
from headrace.client.settings import translate
from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security
from headrace.lag.level_topic import Leadership, LevelTopic, make_topic
from headrace.lag.meter import Meter
from headrace.lag.notices import Notice
from headrace.lag.notifiers import Deliveries, make_notifiers
from headrace.lag.rules import LagConfig
from headrace.lag.watch_machine import Change, LagWatch
from headrace.protocol.errors import KafkaError
from headrace.telemetry.alarms import Alarms

REQUEST_SECONDS = 30.0
PAUSE_MS = 2_000
# How often a standby checks whether it leads, and the leader stores which notices were sent.
CHECK_MS = 200
JOIN_SECONDS = 60.0

_log = logging.getLogger("headrace.lag")


class LagService:
    """Run as many as you like: one leads and alarms, the others stand by and take over its levels.

    A change of level is stored before its notice is sent, and again after it. A crash in between
    may send a notice twice, but never loses one.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        config: LagConfig | None = None,
        clock: Clock | None = None,
        alarms: Alarms | None = None,
    ) -> None:
        self._settings = dict(settings)
        self._config = config or LagConfig()
        self._clock = clock or SystemClock()
        self._alarms = alarms or Alarms()
        self._stop = threading.Event()
        self._sent: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headrace-lag", daemon=True)
        self.is_active = False
        self.measurements = 0

    def start(self) -> None:
        """Start; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current measurement, and leave the work to the others."""
        self._stop.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        """Work until stopped; after an error, pause and start again."""
        while not self._stop.is_set():
            try:
                self._stand_by()
            except Exception as problem:
                _log.warning(
                    "the lag service pauses after an error: %s",
                    problem,
                    exc_info=not _is_expected(problem),
                )
                self._clock.wait(self._stop, PAUSE_MS, poll_ms=PAUSE_MS)

    def _stand_by(self) -> None:
        """Join the other instances, and watch while this one leads."""
        make_topic(self._settings)
        leadership = Leadership(self._settings)
        try:
            while not self._stop.is_set():
                leadership.check()
                if leadership.is_held:
                    self._watch(leadership)
                self._clock.wait(self._stop, CHECK_MS, poll_ms=CHECK_MS)
        finally:
            leadership.close()

    def _watch(self, leadership: Leadership) -> None:
        """Measure, store levels and send notices while this instance leads."""
        level_topic = LevelTopic(self._settings)
        deliveries = Deliveries(make_notifiers(self._config.notifiers, self._alarms), self._clock)
        try:
            config = translate(self._settings, "consumer")
            servers = parse_servers(str(config["bootstrap.servers"]))
            security = Security({name: str(value) for name, value in config.items()})
            with ClusterClient(servers, security, REQUEST_SECONDS) as cluster:
                meter = Meter(cluster, self._clock)
                watch = LagWatch(self._config, level_topic.known, self._clock.monotonic_ms())
                self._send(deliveries, watch.unsent(self._clock.now_ms()))
                self.is_active = True
                measure_at_ms = self._clock.monotonic_ms()
                while leadership.is_held and not self._stop.is_set():
                    if self._clock.monotonic_ms() >= measure_at_ms:
                        measure_at_ms = self._clock.monotonic_ms() + self._config.every_ms
                        self._measure(meter, watch, level_topic, deliveries)
                    self._store_sent(watch, level_topic)
                    left_ms = max(1, measure_at_ms - self._clock.monotonic_ms())
                    self._clock.wait(self._stop, left_ms, poll_ms=CHECK_MS)
        finally:
            self.is_active = False
            deliveries.close()
            level_topic.close()

    def _measure(
        self, meter: Meter, watch: LagWatch, level_topic: LevelTopic, deliveries: Deliveries
    ) -> None:
        """One measurement; if the brokers do not answer, the next one may succeed."""
        try:
            groups = meter.measure(lambda row: self._config.rule_for(row.group) is not None)
        except (OSError, KafkaError) as problem:
            _log.warning("cannot measure the lag of groups: %s", problem)
            return
        missing = watch.levels.keys() - {group.group for group in groups}
        silent = {group for group in missing if meter.is_silent(group)}
        changes = watch.update(groups, self._clock.now_ms(), self._clock.monotonic_ms(), silent)
        if changes:
            level_topic.write({change.notice.group: change.stored for change in changes})
            self._send(deliveries, changes)
        self.measurements += 1

    def _send(self, deliveries: Deliveries, changes: Iterable[Change]) -> None:
        for change in changes:
            deliveries.send(change.notice, change.notify, partial(self._sent.put, change.notice))

    def _store_sent(self, watch: LagWatch, level_topic: LevelTopic) -> None:
        levels = {}
        while not self._sent.empty():
            notice = self._sent.get()
            stored = watch.sent(notice)
            if stored is not None:
                levels[notice.group] = stored
        if levels:
            level_topic.write(levels)


def _is_expected(problem: Exception) -> bool:
    """Whether the brokers are unavailable or another instance has taken over, so no traceback."""
    from confluent_kafka import KafkaException

    return isinstance(problem, OSError | KafkaError | KafkaException)
