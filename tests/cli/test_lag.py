"""`headrace lag`: list, watch and explain, as people and programs read them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.cli.members import Member
from tests.cli.offsets import commit, fill
from tests.cli.tool import Headrace

from headrace.client.message import Message
from headrace.store import open_store
from headrace.store.fingerprints import describe
from headrace.testing import BrokerThread


@pytest.fixture
def shop(broker: BrokerThread) -> str:
    """A broker with two groups: one is two hours behind, the other is not."""
    two_hours_ago_ms = round(time.time() * 1000) - 7_200_000
    fill(broker.bootstrap, "orders", [10, 6], from_ms=two_hours_ago_ms)
    commit(broker.bootstrap, "shop", {("orders", 0): 4, ("orders", 1): 6})
    commit(broker.bootstrap, "audit", {("orders", 0): 10})
    return broker.bootstrap


@pytest.mark.usefixtures("shop")
def test_groups_are_listed_with_their_lag(headrace: Headrace) -> None:
    lines = headrace("lag", "list").stdout.splitlines()
    assert lines[0].split() == ["group", "type", "state", "members", "lag", "behind", "worst"]
    assert lines[1].split() == ["audit", "classic", "Empty", "0", "0", "0ms", "-"]
    assert lines[2].split() == ["shop", "classic", "Empty", "0", "6", "1h59m", "orders:0"]


@pytest.mark.usefixtures("shop")
def test_partitions_are_listed_on_request(headrace: Headrace) -> None:
    lines = headrace("lag", "list", "shop", "-p").stdout.splitlines()
    assert [line.split()[:6] for line in lines[1:]] == [
        ["shop", "orders", "0", "4", "10", "6"],
        ["shop", "orders", "1", "6", "6", "0"],
    ]
    assert len(headrace("lag", "list", "s*", "-p", "--behind").stdout.splitlines()) == 2


@pytest.mark.usefixtures("shop")
def test_json_has_everything(headrace: Headrace) -> None:
    [group] = json.loads(headrace("lag", "list", "--behind", "-o", "json").stdout)
    assert (group["group"], group["lag"], group["members"]) == ("shop", 6, 0)
    first, second = group["partitions"]
    assert (first["lag"], first["standing"], first["lost"], first["held"]) == (6, "ok", 0, 0)
    assert 7_190 < first["behind_s"] < 8_000
    assert second["behind_s"] == 0


@pytest.mark.usefixtures("shop")
def test_a_group_that_is_not_there_is_an_error(headrace: Headrace) -> None:
    for verb in ("list", "explain"):
        errors = headrace("lag", verb, "shp", fails=True).stderr
        assert "there is no group 'shp'" in errors
        assert "did you mean shop?" in errors
    assert headrace("lag", "list", "nothing-*", "-o", "json").stdout == "[]\n"


def test_a_watch_shows_what_is_written_and_read(headrace: Headrace, shop: str) -> None:
    with Member(shop, "shop", "orders", auto_commit_interval_ms=50) as member:
        member.wait_for(lambda member: member.read == 6)
        done = headrace("lag", "watch", "shop", "--every", "50ms", "-c", "3", "-o", "json")
    looks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [look["group"] for look in looks] == ["shop"] * 3
    assert looks[0]["read/s"] is None
    assert looks[2]["read/s"] >= 0
    blocks = headrace("lag", "watch", "--every", "10ms", "-c", "2").stdout.split("\n\n")
    assert [len(block.splitlines()) for block in blocks[:2]] == [3, 3]


@pytest.mark.usefixtures("shop")
def test_a_watch_shows_levels_by_rules(headrace: Headrace, tmp_path: Path) -> None:
    rules = tmp_path / "lag.toml"
    rules.write_text('[[rule]]\ngroups = "shop"\nwarning = { behind = "1h" }\nrise_after = "0s"\n')
    done = headrace("lag", "watch", "--rules", str(rules), "-c", "1")
    assert [line.split()[-1] for line in done.stdout.strip().splitlines()] == [
        "level",
        "ok",
        "warning",
    ]
    rules.write_text("every = 3")
    errors = headrace("lag", "watch", "--rules", str(rules), fails=True).stderr
    assert "every 3 is not a duration" in errors


def test_an_explanation_has_evidence_and_commands(headrace: Headrace, shop: str) -> None:
    said = headrace("lag", "explain", "shop", "--for", "0s").stdout
    assert "likely cause: no consumer" in said
    assert "  - 6 records waiting in 1 partition" in said
    assert "      headrace group seek shop --to latest --dry-run\n" in said
    found = json.loads(headrace("lag", "explain", "shop", "--for", "0s", "-o", "json").stdout)
    assert found["lag"] == 6
    assert [finding["cause"] for finding in found["causes"]] == ["no consumer"]
    assert found["causes"][0]["remedies"][2]["command"] == "headrace group delete shop"
    host, _, port = shop.partition(":")
    elsewhere = f"{host}:{port},{host}:{port}"
    said = headrace("lag", "explain", "shop", "--for", "0s", "-b", elsewhere).stdout
    assert f"headrace group delete shop -b {elsewhere}" in said


@pytest.mark.usefixtures("shop")
def test_the_skip_that_is_offered_works(headrace: Headrace) -> None:
    found = json.loads(headrace("lag", "explain", "shop", "--for", "0s", "-o", "json").stdout)
    words = found["causes"][0]["remedies"][1]["command"].split()[1:]
    assert "would move shop in 1 of 2 partitions" in headrace(*words).stdout
    headrace(*(word for word in words if word != "--dry-run"))
    said = headrace("lag", "explain", "shop", "--for", "0s").stdout
    assert "likely cause: no lag" in said


@pytest.mark.usefixtures("shop")
def test_retries_of_a_store_are_evidence(headrace: Headrace, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    store = open_store(url)
    store.create()
    message = Message("orders", 0, 3, b"anna", b"tea")
    failure = describe(TimeoutError("the bank is away"), "bill")
    with store.begin() as tx:
        store.retries.park(tx, "bill", message, None, failure, 2, 5)
    store.close()
    said = headrace("lag", "explain", "shop", "--for", "0s", "--store", url).stdout
    assert "likely cause: no consumer" in said
    assert "also possible: errors and retries" in said
    assert "1 message of orders waiting for a retry; the last: TimeoutError: the bank" in said
