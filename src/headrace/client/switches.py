"""Switches and rate limits of topics, which an operator changes while producers run."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass

from headrace.client.admin.topics import NeededTopic, admin_client, create_topics
from headrace.client.compacted import CompactedReader
from headrace.client.errors import RateLimited, TopicSwitchedOff
from headrace.client.producer import Producer
from headrace.client.settings import ClientSettings, with_bootstrap
from headrace.closing import Closing

CONTROL_TOPIC = "headrace.control"
READY_SECONDS = 10.0

_log = logging.getLogger("headrace.client")


@dataclass(frozen=True, slots=True)
class SwitchState:
    """Whether a topic may be sent to, and how many records a second from each process."""

    is_on: bool = True
    limit_per_s: float | None = None

    def to_json(self) -> bytes:
        """As it is kept in the control topic."""
        return json.dumps({"on": self.is_on, "limit_per_s": self.limit_per_s}).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SwitchState:
        """From the control topic; ValueError if it is not one."""
        found = json.loads(data)
        if not isinstance(found, dict):
            raise ValueError(f"{data!r} is not the state of a switch: it must be a JSON object")
        limit = found.get("limit_per_s")
        if limit is not None and not (isinstance(limit, int | float) and limit > 0):
            raise ValueError(f"limit_per_s={limit!r} is not a number above 0")
        return cls(found.get("on") is not False, limit)


_ON = SwitchState()
_CONTROL = NeededTopic(CONTROL_TOPIC, 1, {"cleanup.policy": "compact"})


class Rate:
    """Limits records a second; after a quiet time up to a second's worth may go at once."""

    def __init__(self, per_second: float) -> None:
        self.per_second = per_second
        # When the last record given a turn would be due at an even pace.
        self._due_s = float("-inf")

    def wait_s(self, records: int, now_s: float, most_s: float = float("inf")) -> float | None:
        """How long these records must wait; None, and nothing is counted, if above `most_s`."""
        due_s = max(self._due_s, now_s - 1.0) + records / self.per_second
        wait_s = max(0.0, due_s - now_s)
        if wait_s > most_s:
            return None
        self._due_s = due_s
        return wait_s


class Switches(Closing):
    """Follows the switches of all topics; kept in the compacted topic `headrace.control`.

    Safe from many threads; one for a process is enough. A limit counts for each `Switches`.
    """

    def __init__(
        self,
        bootstrap: str | ClientSettings,
        settings: ClientSettings | None = None,
        *,
        ready_s: float = READY_SECONDS,
    ) -> None:
        self._states: dict[str, SwitchState] = {}
        self._rates: dict[str, Rate] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._reader = CompactedReader(bootstrap, CONTROL_TOPIC, self._changed, settings)
        # A starting producer must know what is off; a cluster that does not answer takes no
        # records either.
        self.is_ready = self._reader.caught_up.wait(ready_s)

    def state(self, topic: str) -> SwitchState:
        """The switch of a topic; on and without a limit by default."""
        return self._states.get(topic, _ON)

    def admit(self, topic: str, records: int = 1, most_s: float = float("inf")) -> float:
        """Count these records and return how many seconds to wait before sending them.

        TopicSwitchedOff if the topic is off; RateLimited, and nothing is counted, if the wait would
        be longer than `most_s`.
        """
        state = self._states.get(topic)
        if state is None:
            return 0.0
        if not state.is_on:
            raise TopicSwitchedOff(topic)
        rate = self._rates.get(topic)
        if rate is None:
            return 0.0
        with self._lock:
            wait_s = rate.wait_s(records, time.monotonic(), most_s)
        if wait_s is None:
            raise RateLimited(
                f"{topic} is limited to {rate.per_second:g} records a second",
                "send fewer, or raise max.block.ms to wait longer",
            )
        return wait_s

    def wait(self, topic: str, records: int, most_s: float) -> None:
        """Wait until these records may be sent; TopicSwitchedOff also if it is off afterwards."""
        wait_s = self.admit(topic, records, most_s)
        if wait_s:
            self._closing.wait(wait_s)
            if not self.state(topic).is_on:
                raise TopicSwitchedOff(topic)

    def close(self) -> None:
        """Stop following the topic; the states stay as they are."""
        self._closing.set()
        self._reader.close()

    def _changed(self, key: bytes, value: bytes | None) -> None:
        topic = key.decode()
        state = _ON if value is None else SwitchState.from_json(value)
        with self._lock:
            if state.limit_per_s is None:
                self._rates.pop(topic, None)
            elif self.state(topic).limit_per_s != state.limit_per_s:
                self._rates[topic] = Rate(state.limit_per_s)
            if state == _ON:
                self._states.pop(topic, None)
            else:
                self._states[topic] = state
        _log.info("%s is %s", topic, "on" if state.is_on else "off")

    def states(self) -> dict[str, SwitchState]:
        """All topics whose switch is off or limited."""
        return dict(self._states)


def turn(bootstrap: str | ClientSettings, topic: str, state: SwitchState) -> None:
    """Change a topic's switch for all producers that follow it; durable when it returns."""
    given = with_bootstrap(bootstrap)
    create_topics(admin_client(given), [_CONTROL])
    # A duplicate does no harm, and an idempotent producer needs a second to start.
    with Producer({"enable.idempotence": False, "linger.ms": 0, **given}) as producer:
        producer.send_and_wait(CONTROL_TOPIC, state.to_json(), key=topic.encode())
