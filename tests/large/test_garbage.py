"""Bodies go when the records go that need them, and never before."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.large.sending import SIZE, noise, small_large
from tests.stores import Pair
from tests.waiting import wait_until

from headrace import App, Producer
from headrace.handlers.large import LargeGarbage
from headrace.large.body_store import StoredBody, new_name, open_body_store
from headrace.large.garbage import (
    find_garbage,
    find_unneeded,
    is_garbage,
    needed_by,
)
from headrace.large.rows import row_bodies
from headrace.large.topic_reader import claimed_names
from headrace.large.topic_settings import TopicSettings, TopicSettingsCache
from headrace.store.failed_messages import MessageSelection

GRACE_MS = 1_000
SEGMENT_MS = 700
HERE = "here"
WEEK_MS = 604_800_000


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_body_outlives_every_record_that_needs_it(
    since_ms: int, retention_ms: int, later_ms: int
) -> None:
    body = StoredBody(new_name(HERE, "films", since_ms, "0" * 32), 1)
    facts = TopicSettings(retention_ms=retention_ms, segment_ms=SEGMENT_MS)
    is_over = later_ms > retention_ms + SEGMENT_MS + GRACE_MS
    assert is_garbage(body, facts, since_ms + later_ms, GRACE_MS) == is_over
    for timeless in (TopicSettings(), TopicSettings(is_compacted=True, retention_ms=1)):
        assert not is_garbage(body, timeless, since_ms + later_ms, GRACE_MS)
    assert is_garbage(body, None, since_ms + later_ms, GRACE_MS) == (later_ms > GRACE_MS)


def test_old_bodies_of_each_topic_are_found(tmp_path: Path) -> None:
    claims = open_body_store(str(tmp_path))
    facts = {
        "week": TopicSettings(retention_ms=100_000),
        "ever": TopicSettings(),
        "compact": TopicSettings(is_compacted=True, retention_ms=1),
    }
    names = {}
    for topic in (*facts, "gone"):
        for number, since_ms in enumerate((0, 99_500, 150_000)):
            names[topic, since_ms] = new_name(HERE, topic, since_ms, f"{number:032x}")
            claims.write(names[topic, since_ms], iter([b"xx"]))
    elsewhere = new_name("elsewhere", "week", 0, "f" * 32)
    claims.write(elsewhere, iter([b"xx"]))
    found = find_garbage(claims, HERE, facts.get, 150_500, GRACE_MS)
    expected = {names["week", 0], names["gone", 0], names["gone", 99_500]}
    assert {stored.name for stored in found.garbage} == expected
    assert (found.kept, found.body_bytes) == (9, 6)
    assert found.timeless == {"ever", "compact"}
    assert found.unknown == {"gone"}
    in_topic = {"ever": {names["ever", 0]}, "compact": set[str]()}
    found = find_garbage(claims, HERE, facts.get, 150_500, GRACE_MS, in_topic.__getitem__)
    expected |= {names["ever", 99_500], names["compact", 0], names["compact", 99_500]}
    assert {stored.name for stored in found.garbage} == expected


def test_the_settings_of_topics_decide(pair: Pair, tmp_path: Path) -> None:
    topic = pair.topic("films")
    large = small_large(way="claim", claims=str(tmp_path))
    config = {"bootstrap.servers": pair.bootstrap, "log_level": 0}
    with Producer(config, large=large) as producer:
        producer.send(topic, noise(2 * SIZE)).result(30)
    (body,) = large.body_store.list()
    settings_of = TopicSettingsCache(config)
    assert body.cluster == settings_of.cluster
    facts = settings_of(topic)
    assert facts is not None
    assert (facts.retention_ms, facts.segment_ms) == (WEEK_MS, WEEK_MS)
    assert not facts.is_compacted
    assert claimed_names(config, topic) == {body.name}
    assert settings_of("nobody-has-this") is None
    for after_ms, left in ((0, 1), (2 * WEEK_MS, 1), (2 * WEEK_MS + 2_000, 0)):
        now_ms = body.since_ms + after_ms
        found = find_garbage(large.body_store, settings_of.cluster, settings_of, now_ms, GRACE_MS)
        assert found.kept == left


@pytest.mark.parametrize("kept", [True, False])
def test_an_app_collects_its_own(pair: Pair, kept: bool) -> None:
    """Where one database has both the claim checks and what is put away."""
    topic = pair.topic("films")
    large = small_large(way="claim", claims=pair.store_url, grace=0)
    app = App(pair.bootstrap, store=pair.store_url, large=large)

    @app.handler(topic, group="g")
    def refuse(_: bytes) -> None:
        raise ValueError("a dead letter")

    with app:
        store = app.context.store
        assert store is not None
        app.send(topic, noise(2 * SIZE)).result(30)
        # Until the letter is in its topic, nobody knows how long that keeps it.
        wait_until(
            lambda: [it.state for it in store.dead_letters.find(MessageSelection())] == ["dead"]
        )
        assert len(list(large.body_store.list())) == 2, "its own, and its dead letter's"
        (row,) = needed_by(store)
        if not kept:
            store.dead_letters.discard(MessageSelection())
        now_ms = app.context.clock.now_ms()
        wait_until(lambda: app.context.clock.now_ms() > now_ms, "no longer this very millisecond")
        gone = new_name(next(large.body_store.list()).cluster, "nobody-has-this", 0, "0" * 32)
        large.body_store.write(gone, iter([b"x"]))
        collecting = LargeGarbage(app.context)
        collecting.collect()
        assert gone in {stored.name for stored in large.body_store.list()}, "it is looked for twice"
        collecting.collect()
        assert [stored.name for stored in row_bodies(store).list()] == ([row] if kept else [])
        # Those in the topics are as young as their records.
        assert len(list(large.body_store.list())) == 2
        found = find_unneeded(row_bodies(store), 0, 0, set())
        assert found.garbage == []
