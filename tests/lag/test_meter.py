"""Lag in records and in time, on Headrace and on Apache Kafka."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.apache_kafka import ApacheKafka
from tests.cli.members import Member
from tests.cli.offsets import commit
from tests.cli.open_transactions import begin
from tests.client.kafkas import TIMEOUT_SECONDS, Kafka
from tests.lag.share_members import ShareMember, begin_at
from tests.waiting import wait_until

from headrace.client.admin.groups import MARKERS
from headrace.client.clock import SystemClock
from headrace.client.wire.cluster import ClusterClient
from headrace.client.wire.security import Security
from headrace.lag.group_lag import GroupLag, PartitionLag, Standing
from headrace.lag.meter import Meter

HOUR_MS = 3_600_000

_numbers = itertools.count(1)


class SteppedClock(SystemClock):
    """A wall clock that the test sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def group() -> str:
    """A group that no other test has."""
    return f"lag-group-{next(_numbers)}"


def measure(cluster: ClusterClient, group: str, clock: SystemClock | None = None) -> GroupLag:
    """One look of a new meter at one group."""
    return look(Meter(cluster, clock or SystemClock()), group)


def look(meter: Meter, group: str) -> GroupLag:
    found = meter.measure(lambda row: row.group == group)
    assert len(found) == 1
    return found[0]


def only(group: GroupLag) -> PartitionLag:
    [row] = group.partitions
    return row


def transaction(kafka: Kafka, topic: str, count: int, *, aborts: bool = False) -> None:
    """Write records in a transaction and end it."""
    producer = Producer({**kafka.quiet, "transactional.id": f"tx-{next(_numbers)}"})
    producer.init_transactions(TIMEOUT_SECONDS)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, f"{number}", partition=0)
    if aborts:
        # Else they would not leave this process at all.
        producer.flush(TIMEOUT_SECONDS)
        producer.abort_transaction(TIMEOUT_SECONDS)
    else:
        producer.commit_transaction(TIMEOUT_SECONDS)


def test_records_and_seconds_by_partition(kafka: Kafka, cluster: ClusterClient, group: str) -> None:
    topic = kafka.topic("lag", 3)
    now_ms = round(time.time() * 1000)
    kafka.fill(topic, 10, partition=0, timestamp_ms=now_ms - HOUR_MS)
    kafka.fill(topic, 5, partition=1, timestamp_ms=now_ms - 2 * HOUR_MS)
    kafka.fill(topic, 2, partition=1, timestamp_ms=now_ms - 60_000)
    commit(kafka.bootstrap, group, {(topic, 0): 10, (topic, 1): 4, (topic, 2): 0})
    found = measure(cluster, group, SteppedClock(now_ms))
    assert (found.type, found.state, found.members) == ("classic", "Empty", ())
    rows = [(row.committed, row.end, row.lag, row.behind_ms) for row in found.partitions]
    assert rows == [(10, 10, 0, 0), (4, 7, 3, 2 * HOUR_MS), (0, 0, 0, 0)]
    commit(kafka.bootstrap, group, {(topic, 1): 5})
    assert measure(cluster, group, SteppedClock(now_ms)).behind_ms == 60_000


def test_a_batch_that_is_large_and_packed_is_read_alone(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag", 3)
    producer = Producer(
        {
            **kafka.quiet,
            "linger.ms": 500,
            "batch.size": 900_000,
            "compression.type": "zstd",
        }
    )
    noise = bytes(range(256))
    for number in range(200):
        for partition in range(3):
            value = b"%d" % number + noise * 8
            producer.produce(topic, value, partition=partition, timestamp=1000 + number)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    commit(kafka.bootstrap, group, {(topic, number): 150 for number in range(3)})
    found = measure(cluster, group, SteppedClock(11_150))
    assert [(row.lag, row.behind_ms) for row in found.partitions] == [(50, 10_000)] * 3


def test_markers_and_aborted_records_are_nothing_to_read(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag")
    transaction(kafka, topic, 3)
    transaction(kafka, topic, 4, aborts=True)
    # After the last record that can be read; a marker, four aborted records and theirs follow.
    commit(kafka.bootstrap, group, {(topic, 0): 3})
    meter = Meter(cluster, SystemClock())
    wait_until(lambda: only(look(meter, group)).end == 9)
    for _ in range(2):
        row = only(look(meter, group))
        assert (row.end, row.lag, row.behind_ms) == (9, 0, 0)
    transaction(kafka, topic, 1)
    # Its marker is written a moment after it has ended.
    wait_until(lambda: only(look(meter, group)).lag == 8)
    row = only(look(meter, group))
    assert row.behind_ms is not None
    assert row.behind_ms < HOUR_MS


def test_an_open_transaction_holds_records_that_are_not_lag(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag")
    kafka.fill(topic, 2)
    producer = begin(kafka.bootstrap, f"open-{next(_numbers)}", [(topic, 0)])
    kafka.fill(topic, 5)
    commit(kafka.bootstrap, group, {(topic, 0): 1})
    row = only(measure(cluster, group))
    assert (row.end, row.lag, row.held) == (2, 1, 6)
    # One that is past it does not wait for the transaction.
    commit(kafka.bootstrap, group, {(topic, 0): 4})
    row = only(measure(cluster, group))
    assert (row.end, row.lag, row.held) == (8, 4, 0)
    assert row.behind_ms is not None
    producer.abort_transaction(TIMEOUT_SECONDS)
    commit(kafka.bootstrap, group, {(topic, 0): 1})
    wait_until(lambda: only(measure(cluster, group)).lag == 8)


def test_what_was_deleted_before_it_was_read_is_lost_not_lag(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag")
    kafka.fill(topic, 10, timestamp_ms=50_000)
    commit(kafka.bootstrap, group, {(topic, 0): 2})
    admin = AdminClient(kafka.quiet)
    place = TopicPartition(topic, 0, 6)
    admin.delete_records([place])[place].result(TIMEOUT_SECONDS)
    row = only(measure(cluster, group, SteppedClock(60_000)))
    assert (row.standing, row.lag, row.lost, row.behind_ms) == (Standing.EXPIRED, 4, 4, 10_000)


def test_a_topic_made_anew_leaves_the_group_beyond_its_end(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag")
    commit(kafka.bootstrap, group, {(topic, 0): 7})
    row = only(measure(cluster, group))
    assert (row.standing, row.lag, row.behind_ms) == (Standing.BEYOND, None, None)


def test_a_topic_that_is_deleted_has_no_lag(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    kept, dropped = kafka.topic("lag"), kafka.topic("lag")
    kafka.fill(kept, 3)
    commit(kafka.bootstrap, group, {(kept, 0): 1, (dropped, 0): 0})
    admin = AdminClient(kafka.quiet)
    admin.delete_topics([dropped])[dropped].result(TIMEOUT_SECONDS)
    wait_until(lambda: not any(it.partitions for it in cluster.topics([dropped])))
    found = measure(cluster, group)
    # Kafka forgets the offsets of a topic with the topic, sooner or later.
    gone = [row for row in found.partitions if row.topic == dropped]
    assert all((row.standing, row.lag) == (Standing.DELETED, None) for row in gone)
    assert found.lag == 2


def test_a_partition_without_a_commit_is_shown_without_lag(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag", 2)
    kafka.fill(topic, 3)
    with Member(kafka.bootstrap, group, topic, enable_auto_commit=False) as member:
        member.wait_for(lambda member: member.owned == {0, 1})
        found = measure(cluster, group)
    assert found.state == "Stable"
    assert found.members is not None
    [described] = found.members
    assert described.owned == {(topic, 0), (topic, 1)}
    assert described.topics == {topic}
    assert [(row.standing, row.lag, row.end) for row in found.partitions] == [
        (Standing.NO_COMMIT, None, 3),
        (Standing.NO_COMMIT, None, 0),
    ]
    assert {row.member for row in found.partitions} == {described.id}


def test_a_group_that_moves_is_reckoned_from_what_was_seen(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    """The records' own times are wrong on purpose, so that it shows which of the two was used."""
    topic = kafka.topic("lag")
    clock = SteppedClock(1_000_000)
    meter = Meter(cluster, clock)
    commit(kafka.bootstrap, group, {(topic, 0): 0})
    assert only(look(meter, group)).lag == 0
    clock.ms += 10_000
    kafka.fill(topic, 10, timestamp_ms=500)
    # The first of ten came a tenth of the way from one look to the next.
    assert only(look(meter, group)).behind_ms == 9_000
    commit(kafka.bootstrap, group, {(topic, 0): 4})
    clock.ms += 10_000
    # The fifth came halfway.
    assert only(look(meter, group)).behind_ms == 15_000
    # It stands still now, so the record is read; then it is remembered.
    clock.ms += 10_000
    assert only(look(meter, group)).behind_ms == 1_030_000 - 500


def test_a_marker_of_a_sink_is_no_reader(kafka: Kafka, cluster: ClusterClient) -> None:
    topic = kafka.topic("marked")
    kafka.fill(topic, 5)
    marker, reader = (f"{start}lag-{next(_numbers)}" for start in (MARKERS, ""))
    for group in (marker, reader):
        commit(kafka.bootstrap, group, {(topic, 0): 1})
    found = Meter(cluster, SystemClock()).measure(lambda row: row.group in (marker, reader))
    assert [row.group for row in found] == [reader]


def test_groups_at_different_places_of_a_partition(
    kafka: Kafka, cluster: ClusterClient, group: str
) -> None:
    topic = kafka.topic("lag")
    for number in range(5):
        kafka.fill(topic, 1, timestamp_ms=1000 * (number + 1))
    names = [f"{group}-{number}" for number in range(5)]
    for number, name in enumerate(names):
        commit(kafka.bootstrap, name, {(topic, 0): number})
    found = Meter(cluster, SteppedClock(10_000)).measure(lambda row: row.group in names)
    assert [group.lag for group in found] == [5, 4, 3, 2, 1]
    assert [group.behind_ms for group in found] == [9000, 8000, 7000, 6000, 5000]


def test_a_group_that_its_broker_shares_out(apache_kafka: ApacheKafka) -> None:
    """KIP-848; of Headrace's groups all are classic ones so far."""
    kafka = Kafka("apache", apache_kafka.bootstrap)
    topic = kafka.topic("lag", 2)
    kafka.fill(topic, 3)
    with (
        ClusterClient([("127.0.0.1", apache_kafka.port)], Security()) as cluster,
        Member(
            kafka.bootstrap,
            "lag-modern",
            topic,
            group_protocol="consumer",
            auto_commit_interval_ms=50,
        ) as member,
    ):
        member.wait_for(lambda member: member.owned == {0, 1})
        member.wait_for(lambda member: member.read == 3)
        meter = Meter(cluster, SystemClock())
        wait_until(lambda: look(meter, "lag-modern").lag == 0)
        found = look(meter, "lag-modern")
        assert found.type == "consumer"
        assert found.members is not None
        assert found.members[0].owned == {(topic, 0), (topic, 1)}
        assert found.members[0].topics == {topic}


def test_a_share_group(apache_kafka: ApacheKafka) -> None:
    """KIP-932: several members of a partition, and the oldest record not done is its place."""
    kafka = Kafka("apache", apache_kafka.bootstrap)
    topic = kafka.topic("lag")
    with ClusterClient([("127.0.0.1", apache_kafka.port)], Security()) as cluster:
        with ShareMember(cluster, "lag-shared", topic) as member:
            wait_until(member.beat)
            assert only(measure(cluster, "lag-shared")).standing is Standing.NO_COMMIT
        begin_at(cluster, "lag-shared", topic, 0)
        kafka.fill(topic, 4, timestamp_ms=50_000)
        begin_at(cluster, "lag-shared", topic, 1)
        with ShareMember(cluster, "lag-shared", topic) as member:
            wait_until(member.beat)
            found = measure(cluster, "lag-shared", SteppedClock(60_000))
            assert found.type == "share"
            assert found.members is not None
            assert [member.topics for member in found.members] == [{topic}]
            assert found.members[0].owned == {(topic, 0)}
            row = only(found)
            assert (row.committed, row.end, row.lag, row.behind_ms) == (1, 4, 3, 10_000)
        assert measure(cluster, "lag-shared").is_empty


def test_groups_come_and_go_while_they_are_measured(kafka: Kafka, cluster: ClusterClient) -> None:
    topic = kafka.topic("lag")
    names = [f"fleeting-{number}" for number in range(20)]
    for name in names:
        commit(kafka.bootstrap, name, {(topic, 0): 0})
    admin = AdminClient(kafka.quiet)
    stop = threading.Event()
    problems: list[Any] = []

    def measure_on() -> None:
        try:
            while not stop.is_set():
                Meter(cluster, SystemClock()).measure(lambda row: row.group in names)
        except Exception as problem:
            problems.append(problem)

    thread = threading.Thread(target=measure_on)
    thread.start()
    for future in admin.delete_consumer_groups(names).values():
        future.result(TIMEOUT_SECONDS)
    stop.set()
    thread.join()
    assert not problems
