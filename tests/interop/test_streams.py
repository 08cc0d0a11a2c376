"""A Kafka Streams word count with exactly-once v2 while the broker is killed."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.brokers import restartable
from tests.interop.java_programs import java_program
from tests.interop.wire import read_batches

INPUTS, OUTPUTS = "words", "counts"
PARTITIONS = 2
WORDS = 3000
KILLS_AT = (WORDS // 3, 2 * WORDS // 3)
# So many are on their way at any moment that a kill meets some in each step.
IN_FLIGHT_MAX = 300
SECONDS_MAX = 90.0


def test_words_are_counted_once_through_kills_of_the_broker(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    words = random.Random(7).choices([f"word {number}" for number in range(25)], k=WORDS)
    kind = request.config.getoption("--on", "headrace")
    log = tmp_path / "streams.log"
    with restartable(kind, tmp_path / "broker") as broker:
        client = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        client["reconnect.backoff.max.ms"] = 200
        _make_topics(AdminClient(client))
        arguments = [broker.bootstrap, "word-count", INPUTS, OUTPUTS, str(tmp_path / "state")]
        with _running(java_program("WordCount", *arguments), log), _reading(client) as reader:
            producer = Producer({**client, "enable.idempotence": True})
            kills = list(KILLS_AT)
            sent = seen = 0
            deadline = time.monotonic() + SECONDS_MAX
            while seen < WORDS:
                assert time.monotonic() < deadline, f"{seen} counted:\n{log.read_text()[-4000:]}"
                while sent < min(WORDS, seen + IN_FLIGHT_MAX):
                    producer.produce(INPUTS, words[sent])
                    sent += 1
                producer.poll(0)
                seen += sum(row.error() is None for row in reader.consume(100, timeout=0.05))
                if kills and seen >= kills[0]:
                    kills.pop(0)
                    broker.kill()
                    broker.start()
        counted = _counts_of_each(client)
        assert all(batch.is_transactional for batch in read_batches(broker.bootstrap, OUTPUTS))
    assert counted == {word: list(range(1, times + 1)) for word, times in Counter(words).items()}


def _make_topics(admin: AdminClient) -> None:
    for made in admin.create_topics(
        [NewTopic(name, PARTITIONS, 1) for name in (INPUTS, OUTPUTS)]
    ).values():
        made.result(SECONDS_MAX)


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        yield
        process.terminate()
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
        process.wait()


@contextmanager
def _reading(client: dict[str, object]) -> Iterator[Consumer]:
    """A reader of what is committed of the counts, from the beginning."""
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({**client, **settings, "group.id": "reader", "enable.auto.commit": False})
    try:
        reader.assign([TopicPartition(OUTPUTS, row, OFFSET_BEGINNING) for row in range(PARTITIONS)])
        yield reader
    finally:
        reader.close()


def _counts_of_each(client: dict[str, object]) -> dict[str, list[int]]:
    """All counts that were ever written of each word, in order."""
    counts: dict[str, list[int]] = defaultdict(list)
    ended = 0
    with _reading(client) as reader:
        while ended < PARTITIONS:
            row = reader.poll(SECONDS_MAX)
            assert row is not None, "the counts cannot be read to their end"
            error = row.error()
            if error is None:
                word, count = row.key(), row.value()
                assert isinstance(word, bytes)
                assert isinstance(count, bytes)
                counts[word.decode()].append(int(count))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
    return counts
