"""Producer and Consumer with large messages, on Headrace and on Apache Kafka."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.handlers.running import committed, read_all
from tests.large.sending import SIZE, ByHand, noise, small_large
from tests.stores import Pair

from headrace import Consumer, Large, Producer
from headrace.client.errors import RecordTooLarge
from headrace.client.message import Message
from headrace.large.errors import BodyMissing, LargeBroken, LargeRefused, NoDiskSpace

READ_SECONDS = 30.0


def read(consumer: Consumer, count: int) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        record = consumer.poll(READ_SECONDS)
        assert record is not None, f"{len(records)} of {count}"
        records.append(record)
    return records


def reader(pair: Pair, topic: str, large: Large, **options: Any) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": pair.bootstrap, "isolation.level": "read_committed"},
        group="readers",
        start="earliest",
        large=large,
        **options,
    )
    consumer.subscribe(topic)
    return consumer


@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_values_files_and_iterators_arrive_whole_and_in_order(
    pair: Pair, tmp_path: Path, way: str
) -> None:
    topic = pair.topic("films")
    film, text = noise(5 * SIZE), "words, words, " * 20_000
    large = small_large(way=way, claims=str(tmp_path / "claims"))

    def slices() -> Iterator[bytes]:
        for start in range(0, len(film), 7_001):
            yield film[start : start + 7_001]

    values: list[tuple[Any, bytes]] = [
        (film, film),
        (b"small", b"small"),
        (text, text.encode()),
        (io.BytesIO(film), film),
        (slices(), film),
        (io.BytesIO(b"short"), b"short"),
        (None, b""),
        (io.BytesIO(), b""),
    ]
    with Producer(pair.bootstrap, large=large) as producer:
        for number, (value, _) in enumerate(values):
            sent = producer.send(
                topic, value, key="k", headers={"n": str(number)}, timestamp_ms=1_700_000_000_000
            )
        end = sent.result(30).offset + 1
    with reader(pair, topic, large) as consumer:
        records = read(consumer, len(values))
        for number, (record, (_, expected)) in enumerate(zip(records, values, strict=True)):
            assert (record.value() or b"") == expected
            assert Message.from_record(record).stream().read() == expected
            assert record.headers() == [("n", b"%d" % number)]
            assert record.key() == b"k"
            assert record.timestamp()[1] == 1_700_000_000_000
        consumer.commit_sync()
    assert committed(pair.bootstrap, "readers", topic) == end


def test_senders_that_write_at_once_do_not_disturb_each_other(pair: Pair) -> None:
    topic = pair.topic("films", 2)
    films = {f"{sender}/{n}": noise(4 * SIZE + n) for sender in range(3) for n in range(4)}

    def send(sender: int) -> None:
        with Producer(pair.bootstrap, large=small_large()) as producer:
            for n in range(4):
                name = f"{sender}/{n}"
                producer.send(topic, films[name], key=None, headers={"name": name}).result(30)
                producer.send(topic, b"between", key=name)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with reader(pair, topic, small_large(memory_bytes=SIZE)) as consumer:
        records: list[Any] = []
        while len(records) < 2 * len(films):
            found = consumer.poll_batch(100, READ_SECONDS)
            assert found
            records += found
    large = {dict(it.headers())["name"].decode(): it.value() for it in records if it.headers()}
    assert large == films


def test_serialisers_and_deserialisers_see_values_as_ever(pair: Pair) -> None:
    topic = pair.topic("orders")
    order = {"items": ["tea"] * 10_000}
    with Producer(pair.bootstrap, large=small_large(), value_serializer="json") as producer:
        producer.send(topic, order)
        producer.send(topic, io.BytesIO(json.dumps(order).encode()))
    with reader(pair, topic, small_large(), value_deserializer="json") as consumer:
        assert [record.value() for record in read(consumer, 2)] == [order, order]


def test_nothing_is_committed_beyond_a_message_that_is_not_whole(pair: Pair) -> None:
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    hand.send(b"before")
    rest = hand.begin(1, [b"a", b"b", b"c"])
    hand.send(b"after")
    with reader(pair, topic, small_large()) as consumer:
        assert [record.value() for record in read(consumer, 2)] == [b"before", b"after"]
        consumer.commit_sync()
        assert committed(pair.bootstrap, "readers", topic) == 1
    for chunk in rest:
        hand.put(*chunk)
    with reader(pair, topic, small_large()) as consumer:
        assert [record.value() for record in read(consumer, 2)] == [b"after", b"abc"]
        consumer.commit_sync({(topic, 0): 5})
    assert committed(pair.bootstrap, "readers", topic) == 5


def test_who_begins_in_the_middle_of_a_message_gets_it_whole(pair: Pair) -> None:
    """A message lies where its last chunk lies."""
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    rest = hand.begin(1, [b"a", b"b", b"c"])
    hand.send(b"between")
    hand.put(*rest[0])
    with Consumer(pair.bootstrap, start="latest", large=small_large()) as consumer:
        consumer.assign([(topic, 0, 3)])
        hand.put(*rest[1])
        (record,) = read(consumer, 1)
        assert (record.value(), record.offset()) == (b"abc", 3)


def test_what_could_not_be_kept_is_returned_by_a_later_poll_and_not_committed_before(
    pair: Pair, tmp_path: Path
) -> None:
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    hand.send(b"before")
    parts = [b"a" * SIZE, b"b" * SIZE, b"c" * SIZE]
    for chunk in hand.begin(1, parts):
        hand.put(*chunk)
    for value in (b"after", b"and then"):
        hand.send(value)
    spool = tmp_path / "spool"
    large = small_large(memory_bytes=2 * SIZE, spool_dir=str(spool))
    with reader(pair, topic, large) as consumer:
        assert consumer.poll(READ_SECONDS).value() == b"before"
        with pytest.raises(NoDiskSpace):
            consumer.poll(READ_SECONDS)
        assert consumer.position() == {(topic, 0): 3}
        consumer.commit_sync()
        assert committed(pair.bootstrap, "readers", topic) == 1
        spool.mkdir()
        found = [record.value() for record in read(consumer, 3)]
        assert found == [b"".join(parts), b"after", b"and then"]
        consumer.commit_sync()
    assert committed(pair.bootstrap, "readers", topic) == 6


def test_an_aborted_message_is_not_seen(pair: Pair) -> None:
    topic = pair.topic("films")
    first, second = noise(3 * SIZE), noise(3 * SIZE)
    settings = {"bootstrap.servers": pair.bootstrap, "transactional.id": f"films-{topic}"}
    with Producer(settings, large=small_large()) as producer:
        producer.init_transactions(30)
        producer.begin()
        producer.send(topic, first)
        producer.abort(30)
        producer.begin()
        producer.send(topic, second)
        producer.commit(30)
    with reader(pair, topic, small_large()) as consumer:
        assert [record.value() for record in read(consumer, 1)] == [second]


def test_a_stock_consumer_sees_documented_headers(pair: Pair) -> None:
    topic = pair.topic("films")
    text = b"".join(b"%d " % number for number in range(200_000))
    with Producer(pair.bootstrap, large=small_large()) as producer:
        sent = producer.send(topic, text, key="k", headers={"mine": "1"}).result(30)
    records = read_all(pair.bootstrap, topic, sent.offset + 1)
    assert len(records) > 10
    headers = [dict(record.headers()) for record in records]
    assert {one["headrace-large"] for one in headers} == {b"chunk"}
    assert len({one["headrace-large-id"] for one in headers}) == 1
    assert [one["headrace-large-index"] for one in headers] == [
        b"%d" % index for index in range(len(records))
    ]
    for record, one in zip(records, headers, strict=True):
        assert one["headrace-large-sha256"].decode() == hashlib.sha256(record.value()).hexdigest()
    assert (records[0].key(), headers[0]["headrace-large-codec"]) == (b"k", b"gzip")
    end = headers[-1]
    assert end["mine"] == b"1"
    assert end["headrace-large-first"] == b"0"
    assert end["headrace-large-count"] == b"%d" % len(records)
    body = b"".join(record.value() for record in records)
    assert end["headrace-large-bytes"] == b"%d" % len(body)
    digests = b"".join(bytes.fromhex(one["headrace-large-sha256"].decode()) for one in headers)
    assert end["headrace-large-body"].decode() == hashlib.sha256(digests).hexdigest()
    assert gzip.decompress(body) == text


def test_chunks_are_as_small_as_the_topic_wants_them(pair: Pair) -> None:
    topic = pair.topic("films")
    admin = AdminClient({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    entry = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(2, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    film = noise(3 * SIZE)
    with Producer(pair.bootstrap, large=small_large()) as producer:
        producer.send(topic, film, key="k" * 500).result(30)
    with reader(pair, topic, small_large()) as consumer:
        assert [record.value() for record in read(consumer, 1)] == [film]


def test_a_compacted_topic_takes_claim_checks_only(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("films")
    admin = AdminClient({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(2, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    film = noise(3 * SIZE)
    with (
        Producer(pair.bootstrap, large=small_large()) as producer,
        pytest.raises(LargeRefused, match="compacted"),
    ):
        producer.send(topic, film, key="k")
    large = small_large(claims=str(tmp_path / "claims"))
    with Producer(pair.bootstrap, large=large) as producer:
        producer.send(topic, film, key="k").result(30)
        # What is small enough once it is compressed is one record anyway.
        producer.send(topic, bytes(3 * SIZE), key="zeros").result(30)
    assert len(read_all(pair.bootstrap, topic, 2)) == 2
    with reader(pair, topic, large) as consumer:
        assert [record.value() for record in read(consumer, 2)] == [film, bytes(3 * SIZE)]


def test_a_body_that_is_gone_or_changed_is_an_error_and_no_message(
    pair: Pair, tmp_path: Path
) -> None:
    topic = pair.topic("films")
    large = small_large(way="claim", claims=str(tmp_path / "claims"))
    with Producer(pair.bootstrap, large=large) as producer:
        for _ in range(2):
            producer.send(topic, noise(3 * SIZE)).result(30)
    gone, changed = sorted((tmp_path / "claims").glob(f"*/{topic}/*"))
    gone.unlink()
    changed.write_bytes(b"something else")
    with reader(pair, topic, large) as consumer:
        first, second = read(consumer, 2)
    with pytest.raises(BodyMissing, match="same claims"):
        first.value()
    with pytest.raises(LargeBroken, match="not what was sent"):
        second.value()


def test_without_large_a_large_value_is_refused_as_ever(pair: Pair) -> None:
    topic = pair.topic("films")
    with Producer(pair.bootstrap) as producer, pytest.raises(RecordTooLarge):
        producer.send(topic, noise(3_000_000))


def test_a_delayed_one_is_a_claim_that_lives_by_its_target(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("films")
    large = small_large(claims=str(tmp_path))
    film = noise(3 * SIZE)
    with Producer(pair.bootstrap, large=large) as producer:
        producer.send(topic, film, headers={"headrace-id": topic}, after="1h").result(30)
    (body,) = large.body_store.list()
    assert body.topic == topic
    assert body.since_ms > time.time_ns() // 1_000_000 + 3_000_000
    with (
        Producer(pair.bootstrap, large=small_large()) as producer,
        pytest.raises(LargeRefused, match="one record"),
    ):
        producer.send(topic, film, after="1h")
