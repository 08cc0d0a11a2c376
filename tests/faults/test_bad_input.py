"""Bad input on the wire: an error or a close within a second, the broker lives, nothing is lost."""

from __future__ import annotations

import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from tests.faults.disks import START_MS, batch_of
from tests.faults.processes import BrokerProcess
from tests.faults.samples import samples
from tests.faults.wire import LENGTH, Hangup, Wire, request_frame
from tests.waiting import wait_until

from headrace.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.batch import (
    BASE_SEQUENCE_AT,
    CRC_AT,
    HEADER_BYTES,
    MAGIC_AT,
    RECORD_COUNT_AT,
    build_batch,
    seal,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.records import Record

HANG_SECONDS_MAX = 1.0
GROWTH_BYTES_MAX = 64 << 20
REQUEST_BYTES_MAX = 104_857_600
CANARY = [f"canary{number}" for number in range(50)]
CUTS_SHORT = 6
FUZZ_SHORT = 3_000
FUZZ_LONG = 1_000_000
PIPELINED = 10_000
API_VERSIONS = 18

Ranges = dict[int, tuple[int, int]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all of these tests; in the end it must still have everything."""
    folder: Path = tmp_path_factory.mktemp("bad-input")
    with BrokerProcess(folder / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("canary")
            wire.create_topic("t")
            wire.create_topic("compacted", cleanup_policy="compact")
            for value in CANARY:
                assert wire.produce("canary", 0, batch_of([value])).error_code == 0
        yield broker
        assert_unharmed(broker)
        assert broker.stop() == 0


@pytest.fixture(scope="module")
def ranges(broker: BrokerProcess) -> Ranges:
    request = ApiVersionsRequest(client_software_name="faults", client_software_version="1")
    with Wire(broker.port) as wire:
        answer = wire.ask(request, 3, ApiVersionsResponse)
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}


@pytest.fixture(autouse=True)
def _unharmed_after_each_test(broker: BrokerProcess) -> Iterator[None]:
    before_bytes = broker.resident_bytes()
    sockets = open_sockets(broker)
    yield
    assert_unharmed(broker)
    wait_until(lambda: open_sockets(broker) <= sockets)
    wait_until(lambda: broker.resident_bytes() - before_bytes <= GROWTH_BYTES_MAX)


def open_sockets(broker: BrokerProcess) -> int:
    count = 0
    for link in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            count += str(link.readlink()).startswith("socket:")
    return count


def assert_unharmed(broker: BrokerProcess) -> None:
    assert broker.alive, broker.complaint()
    with Wire(broker.port) as wire:
        values = [value.decode() for _, value in wire.read_values("canary", 0)]
    assert values == CANARY


def outcome(broker: BrokerProcess, data: bytes) -> str:
    """`closed` or `answered`, whichever comes first; AssertionError when neither comes in time."""
    with Wire(broker.port, timeout_s=HANG_SECONDS_MAX * 5) as wire:
        started_s = time.monotonic()
        try:
            wire.send(data)
            wire.receive()
            result = "answered"
        except Hangup:
            result = "closed"
        except TimeoutError:
            raise AssertionError(f"no answer and no close: {data[:80].hex()}") from None
        assert time.monotonic() - started_s <= HANG_SECONDS_MAX, data[:80].hex()
        return result


def framed(content: bytes) -> bytes:
    return LENGTH.pack(len(content)) + content


@pytest.mark.parametrize(
    "length", [-(2**31), -1, 0, 3, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1], ids=str
)
def test_an_impossible_frame_length_is_a_close(broker: BrokerProcess, length: int) -> None:
    assert outcome(broker, LENGTH.pack(length) + bytes(64)) == "closed"


@pytest.mark.parametrize(
    "hello",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /topics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\xff" * 100,
    ],
)
def test_another_protocol_is_a_close(broker: BrokerProcess, hello: bytes) -> None:
    assert outcome(broker, hello) == "closed"


def test_tls_on_the_plain_port_is_a_close(broker: BrokerProcess) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    started_s = time.monotonic()
    plain = socket.create_connection(("127.0.0.1", broker.port), 5)
    with plain, pytest.raises((ssl.SSLError, ConnectionResetError, OSError)):
        context.wrap_socket(plain, server_hostname="localhost")
    assert time.monotonic() - started_s <= HANG_SECONDS_MAX


def test_unknown_keys_and_versions_are_a_close(broker: BrokerProcess, ranges: Ranges) -> None:
    head = bytes.fromhex("00000001 0006 666175 6c7473")
    bad = [(key, 0) for key in (-1, -(2**15), 9999, 2**15 - 1)]
    for key, (first, last) in ranges.items():
        bad += [(key, version) for version in (-1, last + 1, 2**15 - 1) if key != API_VERSIONS]
        if first > 0:
            bad.append((key, first - 1))
    for key, version in bad:
        content = (key & 0xFFFF).to_bytes(2, "big") + (version & 0xFFFF).to_bytes(2, "big") + head
        assert outcome(broker, framed(content)) == "closed", (key, version)


def test_a_too_new_api_versions_is_told_what_there_is(broker: BrokerProcess) -> None:
    content = bytes.fromhex("0012 7fff 0000002a ffff 00 00 00 00")
    with Wire(broker.port) as wire:
        wire.send(framed(content))
        answer = wire.answer(0, ApiVersionsResponse)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert API_VERSIONS in {row.api_key for row in answer.api_keys}
        assert wire.is_answered()


def test_every_request_cut_short_is_a_close(broker: BrokerProcess, ranges: Ranges) -> None:
    check_cuts(broker, ranges, cuts_max=CUTS_SHORT)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_request_cut_at_every_byte_is_a_close(broker: BrokerProcess, ranges: Ranges) -> None:
    check_cuts(broker, ranges, cuts_max=None)


def check_cuts(broker: BrokerProcess, ranges: Ranges, cuts_max: int | None) -> None:
    rng = random.Random(1)
    for key, (first, last) in sorted(ranges.items()):
        for version, request in samples(key, first, last):
            content = request_frame(request, version)[4:]
            cuts = list(range(len(content)))
            if cuts_max is not None:
                cuts = sorted(rng.sample(cuts, min(cuts_max, len(cuts))))
            for cut in cuts:
                what = f"API {key} v{version}, {cut} of {len(content)} bytes"
                assert outcome(broker, framed(content[:cut])) == "closed", what


def test_frames_that_never_end_hold_nothing_up(broker: BrokerProcess, ranges: Ranges) -> None:
    unfinished = []
    for key, (first, last) in sorted(ranges.items()):
        for version, request in samples(key, last, last):
            frame = request_frame(request, version)
            for cut in (1, 4, len(frame) // 2, len(frame) - 1):
                wire = Wire(broker.port)
                wire.send(frame[:cut])
                unfinished.append(wire)
            assert first <= version
    # Of large frames that are only announced one may hold memory, the others wait for it.
    before_bytes = broker.resident_bytes()
    for _ in range(20):
        wire = Wire(broker.port)
        wire.send(LENGTH.pack(REQUEST_BYTES_MAX) + bytes(100))
        unfinished.append(wire)
    with Wire(broker.port) as healthy:
        started_s = time.monotonic()
        assert healthy.is_answered()
        assert time.monotonic() - started_s <= HANG_SECONDS_MAX
    assert broker.resident_bytes() - before_bytes <= GROWTH_BYTES_MAX + REQUEST_BYTES_MAX
    for wire in unfinished:
        wire.close()


def test_absurd_numbers_anywhere_are_an_error_or_a_close(
    broker: BrokerProcess, ranges: Ranges
) -> None:
    """Negative and huge array lengths, overlong varints: laid over each position in turn."""
    absurd = [
        bytes.fromhex("7fffffff"),
        bytes.fromhex("80000000"),
        bytes.fromhex("fffffffe"),
        bytes.fromhex("ffffffff0f"),
        bytes.fromhex("ffffffff7f"),
        bytes.fromhex("80808080808000"),
    ]
    rng = random.Random(2)
    for key, (_, last) in sorted(ranges.items()):
        for version, request in samples(key, last, last):
            content = request_frame(request, version)[4:]
            for pattern in absurd:
                at = rng.randrange(8, len(content))
                broken = content[:at] + pattern + content[at + len(pattern) :]
                assert_no_hang(broker, framed(broken), f"API {key} v{version} at {at}")


def assert_no_hang(broker: BrokerProcess, frame: bytes, what: str) -> None:
    """The frame may be valid and ask to wait, but others must not wait for it."""
    with Wire(broker.port) as wire:
        try:
            wire.send(frame)
        except Hangup:
            return
        with Wire(broker.port) as other:
            started_s = time.monotonic()
            assert other.is_answered(), what
            assert time.monotonic() - started_s <= HANG_SECONDS_MAX, what


def test_repeated_and_unordered_tagged_fields_are_a_close(broker: BrokerProcess) -> None:
    head = bytes.fromhex("0012 0003 00000001 ffff 00")  # ApiVersions v3, flexible header
    body = bytes.fromhex("02 61 02 62")
    for tags in ("02 0000 0000", "02 0500 0300", "01 00ffffffff0f", "ffffffff0f"):
        assert outcome(broker, framed(head + body + bytes.fromhex(tags))) == "closed"
    header_tags = bytes.fromhex("0012 0003 00000001 ffff 02 0000 0000")
    assert outcome(broker, framed(header_tags + body + b"\0")) == "closed"
    assert outcome(broker, framed(head + body + bytes.fromhex("01 6300"))) == "answered"


def test_bytes_after_the_request_do_no_harm(broker: BrokerProcess) -> None:
    """Ignored, as Apache Kafka does; librdkafka leaves some behind."""
    request = ApiVersionsRequest(client_software_name="long", client_software_version="1")
    content = request_frame(request, 3)[4:]
    with Wire(broker.port) as wire:
        for extra in (1, 3, 5_000, 70_000):
            wire.send(framed(content + bytes(extra)))
            assert wire.answer(3, ApiVersionsResponse).error_code == 0


def with_field(position: int, value: bytes, *, sealed: bool) -> bytearray:
    batch = batch_of(["x", "y"])
    batch[position : position + len(value)] = value
    if sealed:
        seal(batch, 0)
    return batch


def sequence_gap() -> bytearray:
    batch = batch_of(["x"], producer_id=77, base_sequence=0)
    batch[BASE_SEQUENCE_AT : BASE_SEQUENCE_AT + 4] = (5).to_bytes(4, "big")
    seal(batch, 0)
    return batch


BAD_BATCHES: dict[str, tuple[Callable[[], bytes | bytearray], set[ErrorCode]]] = {
    "empty": (lambda: b"", {ErrorCode.INVALID_RECORD}),
    "cut in the header": (lambda: batch_of(["x"])[:40], {ErrorCode.INVALID_RECORD}),
    "cut in the records": (lambda: batch_of(["x"])[:-3], {ErrorCode.INVALID_RECORD}),
    "two batches": (
        lambda: batch_of(["x"]) + batch_of(["y"]),
        {ErrorCode.INVALID_RECORD},
    ),
    "crc": (lambda: with_field(CRC_AT, b"\0\0\0\0", sealed=False), {ErrorCode.CORRUPT_MESSAGE}),
    "count too high": (
        lambda: with_field(RECORD_COUNT_AT, b"\0\0\0\3", sealed=True),
        {ErrorCode.INVALID_RECORD},
    ),
    "count negative": (
        lambda: with_field(RECORD_COUNT_AT, b"\xff\xff\xff\xff", sealed=True),
        {ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE},
    ),
    "magic 0": (
        lambda: with_field(MAGIC_AT, b"\0", sealed=True),
        {ErrorCode.INVALID_RECORD},
    ),
    "magic 3": (
        lambda: with_field(MAGIC_AT, b"\3", sealed=True),
        {ErrorCode.CORRUPT_MESSAGE},
    ),
    "length too long": (
        lambda: with_field(8, b"\x00\x0f\xff\xff", sealed=False),
        {ErrorCode.INVALID_RECORD},
    ),
    "length negative": (
        lambda: with_field(8, b"\xff\xff\xff\xff", sealed=False),
        {ErrorCode.CORRUPT_MESSAGE},
    ),
    "unknown codec": (
        lambda: with_field(21, b"\0\7", sealed=True),
        {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD},
    ),
    "control": (lambda: with_field(21, b"\0\x20", sealed=True), {ErrorCode.INVALID_RECORD}),
    "too large": (lambda: batch_of(["x" * (2 << 20)]), {ErrorCode.MESSAGE_TOO_LARGE}),
    "producer without a sequence": (
        lambda: batch_of(["x"], producer_id=5, base_sequence=-1),
        {ErrorCode.INVALID_RECORD},
    ),
}


@pytest.mark.parametrize("what", BAD_BATCHES)
def test_a_bad_batch_is_refused_by_its_code_and_leaves_nothing(
    broker: BrokerProcess, what: str
) -> None:
    make, codes = BAD_BATCHES[what]
    with Wire(broker.port) as wire:
        before = wire.read_values("t", 0)
        answer = wire.produce("t", 0, make())
        assert answer.error_code in codes, answer
        assert answer.base_offset == -1
        assert wire.read_values("t", 0) == before
        assert wire.is_answered()


def test_a_gap_in_the_sequence_is_refused(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        first = wire.produce("t", 0, batch_of(["one"], producer_id=77, base_sequence=0))
        assert first.error_code == 0
        refused = wire.produce("t", 0, sequence_gap())
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        again = wire.produce("t", 0, batch_of(["one"], producer_id=77, base_sequence=0))
        assert (again.error_code, again.base_offset) == (0, first.base_offset)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_a_decompression_bomb_is_refused_and_nobody_waits_for_it(
    broker: BrokerProcess, codec: int
) -> None:
    """Only a compacted topic unpacks what a producer sends."""
    megabytes = 20 if codec == 2 else 200
    bomb = build_batch([Record(0, START_MS, b"k", bytes(megabytes << 20))], codec=codec)
    assert len(bomb) < 1 << 20
    with Wire(broker.port) as wire, Wire(broker.port) as other, ThreadPoolExecutor(1) as pool:
        produced = pool.submit(wire.produce, "compacted", 0, bomb)
        longest_s = 0.0
        while not produced.done():
            started_s = time.monotonic()
            assert other.is_answered()
            longest_s = max(longest_s, time.monotonic() - started_s)
        assert longest_s <= HANG_SECONDS_MAX
        if megabytes > 128:
            assert produced.result().error_code != 0
        assert wire.is_answered()


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_rubbish_under_a_codec_is_refused_on_a_compacted_topic(
    broker: BrokerProcess, codec: int
) -> None:
    batch = build_batch([Record(0, START_MS, b"k", b"v" * 100)], codec=codec)
    batch[HEADER_BYTES + 4 :] = bytes(255 - byte for byte in batch[HEADER_BYTES + 4 :])
    seal(batch, 0)
    with Wire(broker.port) as wire:
        assert wire.produce("compacted", 0, batch).error_code != 0


def test_a_keyless_record_on_a_compacted_topic_is_invalid(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        answer = wire.produce("compacted", 0, batch_of(["keyless"]))
        assert answer.error_code == ErrorCode.INVALID_RECORD


def test_one_byte_at_a_time_is_served(broker: BrokerProcess) -> None:
    request = ApiVersionsRequest(client_software_name="slow", client_software_version="1")
    with Wire(broker.port) as wire:
        for byte in request_frame(request, 3):
            wire.send(bytes([byte]))
        assert wire.answer(3, ApiVersionsResponse).error_code == 0


def test_ten_thousand_pipelined_requests_are_answered_in_order(broker: BrokerProcess) -> None:
    request = ApiVersionsRequest(client_software_name="fast", client_software_version="1")
    frames = [request_frame(request, 3, correlation_id) for correlation_id in range(PIPELINED)]
    with Wire(broker.port) as wire:
        sent = received = 0
        while received < PIPELINED:
            while sent < PIPELINED and sent - received < 2_000:
                wire.send(frames[sent])
                sent += 1
            assert int.from_bytes(wire.receive()[:4], "big") == received
            received += 1


def test_ten_thousand_requests_of_a_client_that_does_not_read_take_bounded_memory(
    broker: BrokerProcess,
) -> None:
    request = ApiVersionsRequest(client_software_name="deaf", client_software_version="1")
    burst = b"".join(request_frame(request, 3, number) for number in range(PIPELINED))
    before_bytes = broker.resident_bytes()
    with Wire(broker.port) as deaf:
        deaf.socket.setblocking(False)
        sent = 0
        try:
            while sent < len(burst):
                sent += deaf.socket.send(burst[sent:])
        except BlockingIOError:
            pass  # back-pressure: the broker reads no more until its answers are taken
        with Wire(broker.port) as other:
            assert other.is_answered()
        assert broker.resident_bytes() - before_bytes <= GROWTH_BYTES_MAX


def test_mutated_frames_never_take_the_broker_down(broker: BrokerProcess, ranges: Ranges) -> None:
    fuzz(broker, ranges, FUZZ_SHORT, seed=3)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_million_mutated_frames_never_take_the_broker_down(
    broker: BrokerProcess, ranges: Ranges
) -> None:
    fuzz(broker, ranges, FUZZ_LONG, seed=4)


def fuzz(broker: BrokerProcess, ranges: Ranges, count: int, seed: int) -> None:
    """Send mutated requests over many connections; a healthy client is served all the time."""
    rng = random.Random(seed)
    originals = [
        request_frame(request, version)[4:]
        for key, (first, last) in sorted(ranges.items())
        for version, request in samples(key, first, last)
    ]
    before_bytes = broker.resident_bytes()
    wires: list[Wire] = []
    with Wire(broker.port) as healthy:
        for number in range(count):
            if len(wires) < 50:
                wires.append(Wire(broker.port))
            wire = rng.choice(wires)
            try:
                wire.send(framed(mutated(rng.choice(originals), rng)))
                drain(wire)
            except Hangup:
                wires.remove(wire)
                wire.close()
            if number % 500 == 0:
                started_s = time.monotonic()
                assert healthy.is_answered()
                assert time.monotonic() - started_s <= HANG_SECONDS_MAX
                assert broker.resident_bytes() - before_bytes <= GROWTH_BYTES_MAX
    for wire in wires:
        wire.close()


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The request with a few bits, bytes or pieces changed; at least as long as a header."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.choice([0x00, 0x01, 0x7F, 0x80, 0xFF])
            case 2:
                del data[at : at + rng.randint(1, 8)]
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case _:
                data[at : at + 4] = rng.choice([b"\x7f\xff\xff\xff", b"\xff" * 4, bytes(4)])
        if len(data) < 8:
            data += bytes(8)
    return bytes(data)


def drain(wire: Wire) -> None:
    """Take whatever answers are there; Hangup when the broker has closed."""
    wire.socket.setblocking(False)
    try:
        while True:
            if not wire.socket.recv(1 << 16):
                raise Hangup
    except BlockingIOError:
        pass
    except ConnectionResetError as error:
        raise Hangup from error
    finally:
        wire.socket.setblocking(True)
        wire.socket.settimeout(5)
