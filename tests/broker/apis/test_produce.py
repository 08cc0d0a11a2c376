"""Produce: acks, idempotence, refusals, codecs, durability."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.wire import (
    PRODUCE_VERSION,
    Wire,
    batch_of,
    fetch_request,
    produce_request,
    records_of,
)

from headrace.protocol.api.fetch import FetchResponse
from headrace.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.api.produce import ProduceResponse
from headrace.protocol.batch import build_batch, iter_records, read_header, seal
from headrace.protocol.compression import Codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record
from headrace.storage import Syncer
from headrace.testing import BrokerThread


@pytest.fixture
def wire(broker: BrokerThread) -> Iterator[Wire]:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        yield wire


def stored(wire: Wire, topic: str, offset: int = 0) -> memoryview:
    return records_of(wire.fetch(topic, offset, max_wait_ms=5_000))


def new_producer_id(wire: Wire) -> int:
    response = wire.call(InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id


@pytest.mark.parametrize("acks", [2, -2, 7])
def test_other_acks_are_refused(wire: Wire, acks: int) -> None:
    assert wire.produce("t", batch_of(b"v"), acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert wire.produce("t", batch_of(b"v")).base_offset == 0


def test_unknown_topics_and_partitions_are_refused_one_by_one(wire: Wire) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("nope", batch_of(b"v")).error_code == unknown
    assert wire.produce("t", batch_of(b"v"), partition=5).error_code == unknown
    assert wire.produce("t", batch_of(b"v"), partition=-1).error_code == unknown


def test_a_repeated_batch_is_answered_with_its_first_offset(wire: Wire) -> None:
    producer_id = new_producer_id(wire)
    batches = [
        batch_of(b"%d" % n, producer_id=producer_id, producer_epoch=0, base_sequence=n)
        for n in range(6)
    ]
    for n, batch in enumerate(batches):
        assert wire.produce("t", bytes(batch)).base_offset == n
    for n in range(1, 6):
        again = wire.produce("t", bytes(batches[n]))
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, n)
    gap = batch_of(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=99)
    assert wire.produce("t", gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert read_header(stored(wire, "t", 5), 0).next_offset == 6


def test_sequences_survive_a_restart(broker: BrokerThread, wire: Wire) -> None:
    producer_id = new_producer_id(wire)
    batch = batch_of(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert wire.produce("t", bytes(batch)).base_offset == 0
    broker.restart()
    with Wire(broker.bootstrap) as again:
        assert again.produce("t", bytes(batch)).base_offset == 0
        assert new_producer_id(again) > producer_id


def test_damaged_batches_are_refused_and_nothing_is_stored(wire: Wire) -> None:
    good = batch_of(b"value")
    for position in (17, 22, 30, 60, len(good) - 1):  # CRC, attributes, times, count, records
        bad = bytearray(good)
        bad[position] ^= 0x10
        error = wire.produce("t", bad).error_code
        assert error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    for cut in (b"", bytes(good)[:40], bytes(good)[:-1]):
        assert wire.produce("t", cut).error_code == ErrorCode.INVALID_RECORD
    assert wire.produce("t", bytes(good) * 2).error_code == ErrorCode.INVALID_RECORD
    assert wire.produce("t", good).base_offset == 0


@pytest.mark.parametrize("attributes", [0x20, 0x120, -0x8000 | 0x20])
def test_a_control_batch_is_refused_whatever_else_it_says(wire: Wire, attributes: int) -> None:
    bad = batch_of(b"value")
    bad[21:23] = attributes.to_bytes(2, "big", signed=True)
    seal(bad, 0)
    assert wire.produce("t", bad).error_code == ErrorCode.INVALID_RECORD


def test_a_large_message_is_refused_by_the_topics_limit(wire: Wire) -> None:
    wire.create_topic("small", max_message_bytes="1000")
    assert wire.produce("small", batch_of(bytes(2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce("small", batch_of(bytes(100))).base_offset == 0


def test_a_keyless_record_on_a_compacted_topic_is_refused(wire: Wire) -> None:
    wire.create_topic("compacted", cleanup_policy="compact")
    keys = [b"a", None, b"b", None]
    refused = wire.produce(
        "compacted", build_batch([Record(n, 0, key, b"v", ()) for n, key in enumerate(keys)])
    )
    assert refused.error_code == ErrorCode.INVALID_RECORD
    # So that a client can send the others again (KIP-467).
    assert [row.batch_index for row in refused.record_errors] == [1, 3]
    assert wire.produce("compacted", batch_of(b"v")).base_offset == 0


def test_log_append_time_is_stamped_and_told(wire: Wire) -> None:
    wire.create_topic("stamped", message_timestamp_type="LogAppendTime")
    result = wire.produce("stamped", batch_of(b"v"))
    assert result.log_append_time_ms > 0
    (record,) = iter_records(stored(wire, "stamped"))
    assert record.timestamp == result.log_append_time_ms


@pytest.mark.parametrize("size", [10, 50_000], ids=["inline", "in a worker"])
@pytest.mark.parametrize("acks", [-1, 1])
def test_the_topics_codec_replaces_the_producers(wire: Wire, size: int, acks: int) -> None:
    wire.create_topic("zipped", compression_type="zstd")
    values = [bytes([n]) * size for n in range(3)]
    result = wire.produce("zipped", batch_of(*values, codec=Codec.GZIP), acks)
    assert (result.error_code, result.base_offset) == (ErrorCode.NONE, 0)
    records = stored(wire, "zipped")
    assert read_header(records, 0).codec == Codec.ZSTD
    assert [record.value for record in iter_records(records)] == values


@pytest.mark.parametrize(
    ("codec", "weak", "strong"), [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-50", "19")]
)
def test_the_topics_level_is_used_to_recompress(
    wire: Wire, codec: str, weak: str, strong: str
) -> None:
    values = [Path(__file__).read_bytes()]
    sizes = []
    for name, level in (("weak", weak), ("strong", strong)):
        level_setting = {f"compression_{codec}_level": level}
        wire.create_topic(name, 1, compression_type=codec, **level_setting)
        assert wire.produce(name, batch_of(*values, codec=Codec.SNAPPY)).error_code == 0
        records = stored(wire, name)
        assert [record.value for record in iter_records(records)] == values
        sizes.append(len(records))
    assert sizes[1] < 0.9 * sizes[0]


def test_acks_all_waits_for_the_sync_and_readers_see_only_synced_records(
    broker: BrokerThread, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    run = Syncer._run

    def held(*args: object) -> None:
        assert gate.wait(10)
        run(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Syncer, "_run", held)
    with Wire(broker.bootstrap) as reader:
        sent = wire.send(produce_request("t", batch_of(b"v")), PRODUCE_VERSION)
        # acks=1 on another connection is answered meanwhile: the write of the first came before.
        assert reader.produce("t", batch_of(b"w"), acks=1).base_offset == 1
        data = reader.fetch("t", 0, max_wait_ms=1).responses[0].partitions[0]
        assert (data.high_watermark, len(data.records or b"")) == (0, 0)
        gate.set()
        answered, response = wire.receive(ProduceResponse, PRODUCE_VERSION)
        assert answered == sent
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert len(
            reader.fetch("t", 0, max_wait_ms=5_000).responses[0].partitions[0].records or b""
        )


def test_a_larger_flush_messages_answers_before_the_sync(
    broker: BrokerThread, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.create_topic("relaxed", flush_messages="1000", flush_ms="9223372036854775807")
    monkeypatch.setattr(Syncer, "request", lambda *args: None)
    assert wire.produce("relaxed", batch_of(b"v")).base_offset == 0
    assert len(stored(wire, "relaxed")) > 0


def test_clients_may_not_write_to_the_brokers_own_topics(wire: Wire) -> None:
    wire.create_topic("__transaction_state")
    refused = wire.produce("__transaction_state", batch_of(b"v"))
    assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_acks_0_is_told_of_errors_by_a_hang_up(wire: Wire) -> None:
    wire.send(produce_request("nope", batch_of(b"v"), acks=0), PRODUCE_VERSION)
    assert wire.hung_up()


def test_acks_0_is_told_by_a_hang_up_of_errors_that_a_worker_finds(wire: Wire) -> None:
    wire.create_topic("compacted", cleanup_policy="compact")
    keyless = build_batch([Record(0, 0, None, b"v")], codec=Codec.GZIP)
    wire.send(produce_request("compacted", keyless, acks=0), PRODUCE_VERSION)
    assert wire.hung_up()


def test_records_of_a_transaction_need_a_transactional_id(wire: Wire) -> None:
    batch = build_batch(
        [Record(0, 0, b"k", b"v", ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert wire.produce("t", batch).error_code == refused


def test_zstd_is_kept_from_clients_that_cannot_know_it(wire: Wire) -> None:
    batch = batch_of(b"v", codec=Codec.ZSTD)
    response = wire.call(produce_request("t", batch), ProduceResponse, 6)
    unsupported = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert response.responses[0].partition_responses[0].error_code == unsupported
    assert wire.produce("t", batch).base_offset == 0
    # Served to old versions all the same, as Apache Kafka 4 does.
    assert len(records_of(wire.call(fetch_request("t", 0), FetchResponse, 9)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_large_batches_on_compacted_topics_are_looked_into_by_a_worker(
    wire: Wire, codec: Codec
) -> None:
    wire.create_topic("compacted", cleanup_policy="compact")
    records = [Record(n, 0, b"%d" % n, b"v" * 20, ()) for n in range(2_000)]
    assert wire.produce("compacted", build_batch(records, codec=codec)).base_offset == 0
    records[1_500] = records[1_500]._replace(key=None)
    refused = wire.produce("compacted", build_batch(records, codec=codec))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [row.batch_index for row in refused.record_errors] == [1_500]
    assert wire.produce("compacted", batch_of(b"v")).base_offset == 2_000


def test_too_few_replicas_refuse_acks_all_only(wire: Wire) -> None:
    wire.create_topic("strict", min_insync_replicas="2")
    assert wire.produce("strict", batch_of(b"v")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert wire.produce("strict", batch_of(b"v"), acks=1).base_offset == 0


def test_a_failed_sync_takes_only_its_log_dir_offline(tmp_path: Path) -> None:
    dirs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    with BrokerThread({"log.dirs": dirs}) as broker, Wire(broker.bootstrap) as wire:
        wire.create_topic("t", 2)
        assert wire.produce("t", batch_of(b"v"), partition=0).base_offset == 0

        def fail_first() -> None:
            partition = broker.broker.node.partitions.get("t", 0)
            assert partition is not None
            partition._synced(OSError(5, "Input/output error"))

        broker.call(fail_first)
        failed = ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.produce("t", batch_of(b"v"), partition=0).error_code == failed
        assert wire.produce("t", batch_of(b"v"), partition=1).base_offset == 0
        assert wire.fetch("t", 0).responses[0].partitions[0].error_code == failed
