"""Large batches of several clients are written by threads, and nobody can tell the difference."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from headrace.protocol.api.produce import ProduceResponse
from headrace.protocol.batch import iter_records
from headrace.storage.staging import OsStage
from headrace.testing import BrokerThread

from .wire import PRODUCE_VERSION, Wire, batch_of, produce_request, records_of

CLIENTS = 4
ROUNDS = 6
LARGE_BYTES = 700_000


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a batch was written ahead of its append."""
    seen: Counter[str] = Counter()
    run = OsStage.run

    def counted(stage: OsStage) -> None:
        seen["run"] += 1
        run(stage)

    monkeypatch.setattr(OsStage, "run", counted)
    return seen


def load(bootstrap: str, topic: str, number: int, sent: list[bytes], errors: list[object]) -> None:
    with Wire(bootstrap, timeout=30) as wire:
        try:
            for _ in range(ROUNDS):
                value = b"%d" % number + os.urandom(LARGE_BYTES)
                sent.append(value)
                for data in (value, b"small"):
                    wire.send(produce_request(topic, batch_of(data), acks=1), PRODUCE_VERSION)
                for _ in range(2):
                    _, response = wire.receive(ProduceResponse, PRODUCE_VERSION)
                    result = response.responses[0].partition_responses[0]
                    assert result.error_code == 0
        except Exception as error:
            errors.append(error)


def wait_until(broker: BrokerThread, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not broker.call(condition):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("topics", [1, CLIENTS])
def test_large_batches_of_many_clients_all_arrive(
    broker: BrokerThread, staged: Counter[str], topics: int
) -> None:
    # The kit's fault hooks see every request, so that none would take a lane.
    broker.call(lambda: setattr(broker.broker.server.dispatcher, "_hooks", None))
    sent: list[list[bytes]] = [[] for _ in range(CLIENTS)]
    errors: list[object] = []
    with Wire(broker.bootstrap) as wire, Wire(broker.bootstrap) as slow:
        for number in range(topics):
            wire.create_topic(f"t{number}")
        # As long as one client is in the middle of a large request, others have theirs staged.
        request = produce_request("t0", batch_of(bytes(LARGE_BYTES)))
        slow.socket.sendall(slow.frame(request, PRODUCE_VERSION)[:-1])
        wait_until(broker, lambda: broker.broker.server.pool.used_bytes > 0)
        threads = [
            threading.Thread(
                target=load,
                args=(broker.bootstrap, f"t{number % topics}", number, sent[number], errors),
            )
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert staged["run"] > 0
        for number in range(topics):
            found = []
            for offset in range(2 * ROUNDS * CLIENTS // topics):
                # What is acknowledged with acks=1 can be read once it is synced.
                answer = wire.fetch(f"t{number}", offset, max_bytes=1, max_wait_ms=10_000)
                data = bytes(records_of(answer))
                (record,) = iter_records(data)
                assert record.offset == offset
                assert record.value is not None
                found.append(record.value)
            mine = [value for at in range(number, CLIENTS, topics) for value in sent[at]]
            assert sorted(value for value in found if value != b"small") == sorted(mine)
        for number in range(topics):
            log = broker.broker.node.logs.get(f"t{number}", 0)
            assert log is not None
            assert os.stat(log.active.file.path).st_size == log.active.size
