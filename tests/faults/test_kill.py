"""kill -9 at random moments, also in the middle of recovery: no acknowledged record is lost."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from tests.faults.checker import check
from tests.faults.clients import IdempotentProducer, Reader, create_topic, read_topic
from tests.faults.processes import BrokerProcess

PARTITIONS = 3
PRODUCERS = 2
RESTART_SECONDS_MAX = 10.0

SHORT_KILLS = 6
SHORT_ACKNOWLEDGED = 20_000
LONG_ROUNDS = 25
LONG_KILLS_PER_ROUND = 20
LONG_ACKNOWLEDGED_PER_ROUND = 400_000


class Round:
    """One topic, its producers and its readers through many kills."""

    def __init__(self, broker: BrokerProcess, topic: str, seed: int):
        self.broker = broker
        self.topic = topic
        self.random = random.Random(seed)
        self.kills = 0
        create_topic(broker.bootstrap, topic, PARTITIONS)
        self.producers = [
            IdempotentProducer(broker.bootstrap, topic, PARTITIONS, number)
            for number in range(PRODUCERS)
        ]
        self.reader = Reader(broker.bootstrap, topic, PARTITIONS, process=50)
        self._done = threading.Event()
        self._pause = threading.Event()  # never set: waited on with a timeout, to let time pass

    @property
    def acknowledged(self) -> int:
        return sum(producer.acknowledged for producer in self.producers)

    def run(self, kills: int, acknowledged: int) -> None:
        writers = [
            threading.Thread(target=self._write, args=(producer,), daemon=True)
            for producer in self.producers
        ]
        self.reader.start()
        for writer in writers:
            writer.start()
        try:
            while self.kills < kills or self.acknowledged < acknowledged:
                self._pause.wait(self.random.uniform(0.0, 0.4))
                if self.kills < kills:
                    self._kill()
        finally:
            self._done.set()
            for writer in writers:
                writer.join()
            self.reader.stop()

    def check(self) -> None:
        """Read everything with a fresh reader and look at the whole history."""
        for producer in self.producers:
            assert producer.fatal is None, producer.fatal
        history = [operation for producer in self.producers for operation in producer.operations()]
        history += self.reader.history
        history += read_topic(self.broker.bootstrap, self.topic, PARTITIONS, process=99)
        assert check(history) == []
        # All was answered in the end, so nothing may be left in doubt.
        assert all(not operation.values for operation in history if operation.kind == "maybe")

    def _write(self, producer: IdempotentProducer) -> None:
        while not self._done.is_set() and producer.fatal is None:
            producer.send(200)
        assert producer.flush() == 0

    def _kill(self) -> None:
        """Kill; sometimes kill the next process again before it is ready."""
        self.broker.kill()
        self.kills += 1
        while self.random.random() < 0.3:
            self.broker.launch()
            self._pause.wait(self.random.uniform(0.05, 0.5))
            self.broker.kill()
            self.kills += 1
        self.broker.start()


def test_acknowledged_records_survive_kills_exactly_once_and_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        life = Round(broker, "t", seed=1)
        life.run(SHORT_KILLS, SHORT_ACKNOWLEDGED)
        life.check()
        assert life.acknowledged >= SHORT_ACKNOWLEDGED
        assert max(broker.start_seconds) <= RESTART_SECONDS_MAX


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_acknowledged_records_survive_five_hundred_kills(tmp_path: Path) -> None:
    # Small segments, so that kills also meet rolls, snapshots and many files.
    settings = ["log.segment.bytes=4194304", "log.flush.offset.checkpoint.interval.ms=500"]
    kills = acknowledged = 0
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        for number in range(LONG_ROUNDS):
            life = Round(broker, f"t{number}", seed=number)
            life.run(LONG_KILLS_PER_ROUND, LONG_ACKNOWLEDGED_PER_ROUND)
            life.check()
            kills += life.kills
            acknowledged += life.acknowledged
        assert kills >= 500
        assert acknowledged >= 10_000_000
        assert max(broker.start_seconds) <= RESTART_SECONDS_MAX
