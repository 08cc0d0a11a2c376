"""`headrace large`: bodies by topic, and those that nobody needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.tool import Headrace

from headrace.large.body_store import BodyStore, new_name, open_body_store
from headrace.large.topic_settings import TopicSettingsCache
from headrace.testing import BrokerThread

OLD_MS = 1_600_000_000_000
# Of a cluster that uses the same place.
OTHERS = new_name("other", "films", OLD_MS, "9" * 32)


@pytest.fixture
def claims(tmp_path: Path, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> BodyStore:
    cluster = TopicSettingsCache({"bootstrap.servers": broker.bootstrap}).cluster
    monkeypatch.setenv("HEADRACE_LARGE", str(tmp_path / "large"))
    opened = open_body_store(str(tmp_path / "large"))
    for number in range(2):
        name = new_name(cluster, "films", OLD_MS + number, f"{number:032x}")
        opened.write(name, iter([b"four"]))
    opened.write(new_name(cluster, "prices", OLD_MS, "2" * 32), iter([b"four"]))
    opened.write(OTHERS, iter([b"four"]))
    return opened


def test_bodies_are_listed_by_topic(claims: BodyStore, headrace: Headrace) -> None:
    rows = json.loads(headrace("large", "list", "-o", "json").stdout)
    found = {(row["cluster"] == "other", row["topic"]): row for row in rows}
    assert {place: (row["bodies"], row["bytes"]) for place, row in found.items()} == {
        (False, "films"): (2, 8),
        (False, "prices"): (1, 4),
        (True, "films"): (1, 4),
    }
    assert rows[0]["oldest"].startswith("2020-09-13")


def test_bodies_beyond_retention_are_removed(claims: BodyStore, headrace: Headrace) -> None:
    headrace("topic", "create", "films")
    headrace("topic", "create", "prices", "--config", "cleanup.policy=compact")
    said = headrace("large", "gc", "--dry-run").stdout.splitlines()
    assert said[0] == "would remove 2 bodies, 8 bytes; kept 1"
    assert said[1].endswith(": prices")
    assert len(list(claims.list())) == 4
    assert headrace("large", "gc").stdout.startswith("removed 2 bodies, 8 bytes; kept 1")
    assert headrace("large", "gc", "--scan").stdout == "removed 1 bodies, 4 bytes; kept 0\n"
    assert [stored.name for stored in claims.list()] == [OTHERS]


def test_the_store_is_looked_at_too(claims: BodyStore, headrace: Headrace, tmp_path: Path) -> None:
    from headrace.large.rows import row_bodies
    from headrace.store import open_store

    url = f"sqlite:///{tmp_path / 'shop.db'}"
    store = open_store(url)
    store.create()
    row_bodies(store).write(new_name("kept", "films", OLD_MS, "3" * 32), iter([b"four"]))
    said = headrace("large", "gc", "--store", url).stdout.splitlines()
    assert said[-1] == "removed 1 bodies of the store, 4 bytes; kept 0"
    store.close()


def test_a_place_that_nobody_knows_is_refused(headrace: Headrace) -> None:
    done = headrace("large", "list", "--claims", "nonsense://x", fails=True)
    assert "nonsense" in done.stderr
