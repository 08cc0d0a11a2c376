"""The lag service: measures all groups from time to time and tells people when one is behind."""

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
from headrace.lag.board import Board, Seat, make_topic
from headrace.lag.deliveries import Deliveries
from headrace.lag.meter import Meter
from headrace.lag.notices import Notice
from headrace.lag.notifiers import make_notifiers
from headrace.lag.rules import LagConfig
from headrace.lag.watch import Change, Watch
from headrace.protocol.errors import KafkaError
from headrace.telemetry.alarms import Alarms

REQUEST_SECONDS = 30.0
PAUSE_MS = 2_000
# How soon one that stands by notices that it is its turn, and what was told is written down.
LOOK_MS = 200
JOIN_SECONDS = 60.0

_log = logging.getLogger("headrace.lag")


class LagService:
    """Started as often as wanted: one alarms, the others stand by and take over its levels.

    A change of level is written down before it is told, and once more after it, so a crash between
    may tell it twice but never not at all.
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
        self._told: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="headrace-lag", daemon=True)
        self.is_active = False
        self.looks = 0

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End after the look that is under way, and leave the work to the others."""
        self._stop.set()
        self._thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        """Work until stopped; while the brokers are away, it pauses and goes on."""
        while not self._stop.is_set():
            try:
                self._sit()
            except Exception as problem:
                _log.warning("the lag service pauses: %s", problem, exc_info=not _is_away(problem))
                self._clock.wait(self._stop, PAUSE_MS, poll_ms=PAUSE_MS)

    def _sit(self) -> None:
        """Join the others, and watch whenever it is this one's turn."""
        make_topic(self._settings)
        seat = Seat(self._settings)
        try:
            while not self._stop.is_set():
                seat.check()
                if seat.is_taken:
                    self._watch(seat)
                self._clock.wait(self._stop, LOOK_MS, poll_ms=LOOK_MS)
        finally:
            seat.close()

    def _watch(self, seat: Seat) -> None:
        """Look, write down and tell for as long as the seat is this one's."""
        board = Board(self._settings)
        deliveries = Deliveries(make_notifiers(self._config.notifiers, self._alarms), self._clock)
        try:
            config = translate(self._settings, "consumer")
            servers = parse_servers(str(config["bootstrap.servers"]))
            security = Security({name: str(value) for name, value in config.items()})
            with ClusterClient(servers, security, REQUEST_SECONDS) as cluster:
                meter = Meter(cluster, self._clock)
                watch = Watch(self._config, board.known, self._clock.monotonic_ms())
                self._tell(deliveries, watch.untold(self._clock.now_ms()))
                self.is_active = True
                look_ms = self._clock.monotonic_ms()
                while seat.is_taken and not self._stop.is_set():
                    if self._clock.monotonic_ms() >= look_ms:
                        look_ms = self._clock.monotonic_ms() + self._config.every_ms
                        self._look(meter, watch, board, deliveries)
                    self._note_told(watch, board)
                    left_ms = max(1, look_ms - self._clock.monotonic_ms())
                    self._clock.wait(self._stop, left_ms, poll_ms=LOOK_MS)
        finally:
            self.is_active = False
            deliveries.close()
            board.close()

    def _look(self, meter: Meter, watch: Watch, board: Board, deliveries: Deliveries) -> None:
        """One look; if the brokers cannot be asked, the next one may be luckier."""
        try:
            groups = meter.look(lambda row: self._config.rule_for(row.group) is not None)
        except (OSError, KafkaError) as problem:
            _log.warning("the lag of groups could not be measured: %s", problem)
            return
        missing = watch.levels.keys() - {group.group for group in groups}
        silent = {group for group in missing if meter.is_silent(group)}
        changes = watch.look(groups, self._clock.now_ms(), self._clock.monotonic_ms(), silent)
        if changes:
            board.write({change.notice.group: change.watched for change in changes})
            self._tell(deliveries, changes)
        self.looks += 1

    def _tell(self, deliveries: Deliveries, changes: Iterable[Change]) -> None:
        for change in changes:
            deliveries.send(change.notice, change.notify, partial(self._told.put, change.notice))

    def _note_told(self, watch: Watch, board: Board) -> None:
        states = {}
        while not self._told.empty():
            notice = self._told.get()
            watched = watch.told(notice)
            if watched is not None:
                states[notice.group] = watched
        if states:
            board.write(states)


def _is_away(problem: Exception) -> bool:
    """Whether it says no more than that the brokers are away, or that another has taken over."""
    from confluent_kafka import KafkaException

    return isinstance(problem, OSError | KafkaError | KafkaException)
