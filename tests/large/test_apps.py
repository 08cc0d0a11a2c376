"""Handlers and large messages: retries, dead letters, inbox, transactions, restarts, expiry."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from sqlalchemy import Column, LargeBinary, MetaData, String, Table, insert, select
from tests.handlers.running import committed
from tests.large.sending import SIZE, ByHand, noise, small_large
from tests.stores import Pair
from tests.waiting import wait_until

from headrace import (
    App,
    Backoff,
    Consumer,
    Large,
    Message,
    Output,
    Producer,
    Resend,
    Retry,
    Transaction,
)
from headrace.client.errors import RecordTooLarge
from headrace.handlers.dead_letters import replay
from headrace.large.garbage import needed_by
from headrace.large.rows import row_bodies
from headrace.store.failed_messages import MessageSelection
from headrace.telemetry.alarms import Alarm

_metadata = MetaData()
effects = Table("films", _metadata, Column("name", String), Column("digest", LargeBinary))


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def new_app(pair: Pair, large: Large | None = None, store: bool = True) -> App:
    app = App(pair.bootstrap, store=pair.store_url if store else None, large=large or small_large())
    if store:
        assert app.context.store is not None
        app.context.store.create()
        with app.context.store.begin() as tx:
            _metadata.create_all(tx.connection)
    return app


def stored(app: App) -> list[bytes]:
    """What has taken effect; the app must be running."""
    assert app.context.store is not None
    with app.context.store.read() as tx:
        return list(tx.execute(select(effects.c.digest)).scalars())


@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_a_handler_need_not_know(pair: Pair, tmp_path: Path, way: str) -> None:
    topic = pair.topic("films", 2)
    app = new_app(pair, small_large(way=way, claims=str(tmp_path)), store=False)
    films = [noise(3 * SIZE + number) for number in range(6)]
    whole: list[bytes] = []
    streamed: list[bytes] = []
    batches: list[bytes] = []
    awaited: list[bytes] = []

    @app.handler(topic, group="whole")
    def take(film: bytes) -> None:
        whole.append(film)

    @app.handler(topic, group="streamed", order="key")
    def read(message: Message) -> None:
        with message.stream() as stream:
            streamed.append(stream.read(SIZE) + stream.read())

    @app.handler(topic, group="batches", batch=4)
    def many(films: list[bytes]) -> None:
        batches.extend(films)

    @app.handler(topic, group="awaited", order="none")
    async def wait(film: bytes, message: Message) -> None:
        assert message.header("n") is not None
        assert message.header("headrace-large") is None
        awaited.append(film)

    with app:
        for number, film in enumerate(films):
            app.send(topic, film, key=str(number), headers={"n": str(number)})
            app.send(topic, b"small", headers={"n": "small"})
        expected = sorted([*films, *[b"small"] * 6])
        for found in (whole, streamed, batches, awaited):
            wait_until(lambda: len(found) == 12)  # noqa: B023
            assert sorted(found) == expected


@pytest.mark.parametrize("way", ["chunks", "claim"])
def test_a_failed_one_is_parked_tried_again_buried_and_replayed(
    pair: Pair, tmp_path: Path, way: str
) -> None:
    topic = pair.topic("films")
    large = small_large(way=way, claims=str(tmp_path))
    app = new_app(pair, large)
    assert app.context.store is not None
    flaky, poison, behind = noise(3 * SIZE), noise(4 * SIZE), noise(2 * SIZE)
    runs: list[bytes] = []
    cured = False
    retry = Retry(in_place=1, delay="1ms", then=Backoff("10ms", "20ms", attempts=2))

    @app.handler(topic, group="g", order="key", retry=retry)
    def work(message: Message, tx: Transaction) -> None:
        with message.stream() as stream:
            film = stream.read()
        runs.append(digest(film))
        if not cured and (film == poison or (film == flaky and runs.count(digest(flaky)) < 4)):
            raise ValueError("not now")
        tx.execute(insert(effects).values(name=message.id, digest=digest(film)))

    with app:
        app.send(topic, flaky, key="a", headers={"headrace-id": "flaky", "mine": "1"})
        app.send(topic, behind, key="a")
        app.send(topic, poison, key="b", headers={"headrace-id": "poison"})
        wait_until(lambda: len(stored(app)) == 2, "the flaky one, and the one behind it")
        assert stored(app) == [digest(flaky), digest(behind)]
        index = app.context.store.dead_letters
        wait_until(lambda: index.find(MessageSelection()), "the poisonous one is a dead letter")
        (letter,) = index.find(MessageSelection())
        # The row is small; its body lies with the store.
        assert len(letter.message.value or b"") < 400
        assert needed_by(app.context.store) == {(letter.message.value or b"").decode()}
        assert len(list(row_bodies(app.context.store).list())) >= 1
        with Consumer(pair.bootstrap, group="dead", start="earliest", large=large) as consumer:
            consumer.subscribe(f"{topic}.dlq")
            record = consumer.poll(30)
            assert record.value() == poison
            assert dict(record.headers())["headrace-error"] == b"ValueError: not now"
        cured = True
        pages = list(replay(app.context.store, app.context.producer, MessageSelection(), large))
        assert sum(map(len, pages)) == 1
        wait_until(lambda: len(stored(app)) == 3, "the replayed one")
        assert stored(app)[-1] == digest(poison)


def test_a_resent_one_is_sent_whole(pair: Pair) -> None:
    topic = pair.topic("films")
    app = new_app(pair, store=False)
    film = noise(3 * SIZE)
    runs: list[tuple[bytes, bytes | None]] = []

    @app.handler(topic, group="g", order="none", retry=Retry(then=Resend(attempts=2)))
    def work(message: Message) -> None:
        runs.append((message.value or b"", message.header("headrace-resent")))
        if len(runs) == 1:
            raise ValueError("once more, from the end of the topic")

    with app:
        app.send(topic, film)
        wait_until(lambda: len(runs) == 2)
    assert runs == [(film, None), (film, b"1")]


def test_a_repeated_one_has_one_effect(pair: Pair) -> None:
    topic = pair.topic("films")
    app = new_app(pair)
    films = [noise(3 * SIZE) for _ in range(3)]

    @app.handler(topic, group="g")
    def work(film: bytes, tx: Transaction) -> None:
        tx.execute(insert(effects).values(name="", digest=digest(film)))

    with app:
        for _ in range(2):
            for number, film in enumerate(films):
                sent = app.send(topic, film, headers={"headrace-id": f"film-{number}"})
        end = sent.result(30).offset + 1
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == end)
        assert stored(app) == [digest(film) for film in films]


def test_the_outbox_takes_large_messages(pair: Pair) -> None:
    source, topic = pair.topic("orders"), pair.topic("films")
    app = new_app(pair)
    film = noise(3 * SIZE)
    found: list[bytes] = []

    @app.handler(source, group="g")
    def order(_: bytes, tx: Transaction) -> None:
        tx.send(topic, film, key="k")

    @app.handler(topic, group="h")
    def take(film: bytes) -> None:
        found.append(film)

    with app:
        app.send(source, b"one, please")
        wait_until(lambda: found)
    assert found == [film]


def test_a_kafka_transaction_may_hold_large_messages_in_and_out(pair: Pair) -> None:
    topic, copies = pair.topic("films"), pair.topic("copies")
    app = new_app(pair, store=False)
    films = [noise(3 * SIZE) for _ in range(3)]
    failed: list[bool] = []

    @app.handler(topic, group="g", once="transaction", retry=Retry(in_place=2, delay="1ms"))
    def copy(message: Message, out: Output) -> None:
        out.send(copies, message.stream(), key=message.key)
        if not failed:
            failed.append(True)
            raise ValueError("aborted, then run again")

    with app:
        for film in films:
            sent = app.send(topic, film, key="k")
        end = sent.result(30).offset + 1
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == end)
    settings = {"bootstrap.servers": pair.bootstrap, "isolation.level": "read_committed"}
    with Consumer(settings, group="c", start="earliest", large=small_large()) as consumer:
        consumer.subscribe(copies)
        found = [consumer.poll(30).value() for _ in films]
        assert consumer.poll(0.2) is None
    assert found == films


@pytest.mark.parametrize("once", ["", "inbox", "offsets", "transaction"])
def test_a_restart_in_the_middle_of_a_message_loses_nothing(pair: Pair, once: str) -> None:
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    hand.send(b"before")
    rest = hand.begin(1, [b"a" * SIZE, b"b" * SIZE, b"c"])
    hand.send(b"after")
    runs: list[bytes] = []

    def make() -> App:
        app = new_app(pair)

        @app.handler(topic, group="g", name="work", once=once or None)
        def work(value: bytes) -> None:
            runs.append(value)

        return app

    with make():
        wait_until(lambda: runs == [b"before", b"after"])
    place = committed(pair.bootstrap, "g", topic)
    # A transaction moves the group itself, and offsets in the database count for more than these:
    # both are beyond the first chunk, and go back for it when the end comes.
    assert place == (3 if once == "transaction" else 1)
    runs.clear()
    film = b"a" * SIZE + b"b" * SIZE + b"c"
    with make():
        hand.put(*rest[0])
        hand.put(*rest[1])
        wait_until(lambda: film in runs)
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 5)
    again = [] if once else [b"after"]
    assert runs == [*again, film]


def test_what_nobody_finishes_expires_and_the_partition_goes_on(pair: Pair) -> None:
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    app = new_app(pair, small_large(expire="300ms"), store=False)
    alarms: list[Alarm] = []
    app.on_alarm(alarms.append)
    runs: list[bytes] = []

    @app.handler(topic, group="g")
    def work(value: bytes) -> None:
        runs.append(value)

    with app:
        hand.begin(1, [b"a", b"b", b"c"])
        for _ in range(10):
            hand.send(b"after")
        # The others never wait for it.
        wait_until(lambda: len(runs) == 10)
        wait_until(lambda: alarms, "the alarm")
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 11)
    assert [alarm.name for alarm in alarms] == ["large-incomplete"]
    assert alarms[0].details["source"] == f"{topic}/0/0"
    assert runs == [b"after"] * 10


def test_a_broken_one_is_a_dead_letter_and_holds_up_nobody(pair: Pair) -> None:
    topic = pair.topic("films")
    hand = ByHand(pair.bootstrap, topic)
    app = new_app(pair)
    assert app.context.store is not None
    alarms: list[Alarm] = []
    app.on_alarm(alarms.append)
    runs: list[bytes] = []

    @app.handler(topic, group="g")
    def work(value: bytes) -> None:
        runs.append(value)

    with app:
        (chunk, _), (last, data) = hand.begin(1, [b"a", b"b", b"c"])
        hand.put(chunk, b"not b")
        hand.put(last, data)
        hand.send(b"after")
        wait_until(lambda: runs == [b"after"])
        wait_until(lambda: committed(pair.bootstrap, "g", topic) == 4)
        (letter,) = app.context.store.dead_letters.find(MessageSelection())
    assert "chunk 1 does not match its digest" in letter.failure.error
    assert {"large-broken", "dead-letter"} <= {alarm.name for alarm in alarms}


def test_a_spill_takes_large_messages(pair: Pair) -> None:
    topic = pair.topic("films")
    app = new_app(pair)
    films = [noise(2 * SIZE + number) for number in range(30)]
    runs: list[bytes] = []

    @app.handler(topic, group="g", order="none", pressure="spill", workers=1, buffer_messages=2)
    def work(film: bytes) -> None:
        wait_until(lambda: len(runs) > 20 or is_full())
        runs.append(film)

    def is_full() -> bool:
        assert app.context.store is not None
        return app.context.store.spill.count("g.work") > 3

    with app:
        for film in films:
            app.send(topic, film)
        wait_until(lambda: len(runs) == len(films))
    assert sorted(runs) == sorted(films)


def test_an_app_may_do_without(pair: Pair) -> None:
    app = App(pair.bootstrap, large=False)
    topic = pair.topic("films")
    try:
        with pytest.raises(RecordTooLarge):
            app.send(topic, noise(3_000_000))
    finally:
        app.stop()


def test_a_table_has_large_values(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("posters")
    app = new_app(pair, small_large(way="claim", claims=str(tmp_path)), store=False)
    poster, zeros = noise(3 * SIZE), bytes(10 * SIZE)
    with Producer(pair.bootstrap, large=small_large()) as producer:
        producer.send(topic, zeros, key="zeros").result(30)
    app.send(topic, poster, key="poster")
    app.send(topic, b"small", key="small").result(30)
    posters = app.table(topic)
    with app:
        assert dict(posters) == {"zeros": zeros, "poster": poster, "small": b"small"}
