"""One contract for every body store: a folder, file systems of fsspec, two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from fsspec.core import url_to_fs
from tests.hdfs import hdfs
from tests.s3_server import s3_server

from headrace.errors import HandlerError
from headrace.large.body_store import (
    BodyStore,
    StoredBody,
    cluster_name,
    is_name,
    new_name,
    open_body_store,
)
from headrace.large.errors import BodyMissing, BodyStoreUnavailable

NAME = new_name("c1", "films", 1_700_000_000_000, "0" * 32)
OTHER = new_name("c1", "films", 1_700_000_000_001, "1" * 32)
BODY = [b"a" * 700_000, b"b" * 700_000, b"c"]


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture(scope="module")
def hdfs_url() -> Iterator[str]:
    with hdfs() as url:
        yield url


@pytest.fixture
def new_bucket(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    bucket = f"bodies-{uuid4().hex[:8]}"
    url_to_fs("s3://")[0].mkdir(bucket)
    return f"s3://{bucket}/large"


PLACES = [
    "folder", "memory", "sqlite", "postgres", "s3", pytest.param("hdfs", marks=pytest.mark.long),
]  # fmt: skip


@pytest.fixture(params=PLACES)
def claims(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BodyStore]:
    match request.param:
        case "folder":
            url = str(tmp_path / "large")
        case "memory":
            url = f"memory://{tmp_path.name}/large"
        case "s3":
            url = request.getfixturevalue("new_bucket")
        case "hdfs":
            url = f"{request.getfixturevalue('hdfs_url')}/{tmp_path.name}"
        case database:
            url = request.getfixturevalue("new_database")(database)
    opened = open_body_store(url)
    yield opened
    opened.close()


def test_a_body_comes_back_as_it_was_written(claims: BodyStore) -> None:
    claims.write(NAME, iter(BODY))
    with claims.open(NAME) as file:
        assert file.read(3) == b"aaa"
        assert file.read() == b"".join(BODY)[3:]
        assert file.read(1) == b""
    claims.write(OTHER, iter([]))
    with claims.open(OTHER) as file:
        assert file.read() == b""


def test_bodies_are_listed_and_removed(claims: BodyStore) -> None:
    assert list(claims.list()) == []
    claims.write(NAME, iter(BODY))
    claims.write(OTHER, iter([b"x"]))
    found = {stored.name: stored for stored in claims.list()}
    assert found == {NAME: StoredBody(NAME, 1_400_001), OTHER: StoredBody(OTHER, 1)}
    assert (found[NAME].cluster, found[NAME].topic) == ("c1", "films")
    assert found[NAME].since_ms == 1_700_000_000_000
    claims.delete([NAME, NAME])
    assert [stored.name for stored in claims.list()] == [OTHER]


def test_a_body_that_is_not_there_is_missing(claims: BodyStore) -> None:
    for name in (NAME, "../films/1-" + "0" * 32, "c1/../1-" + "0" * 32, "/etc/passwd", "films"):
        with pytest.raises(BodyMissing):
            claims.open(name)


def test_what_the_senders_stream_raises_is_not_taken_for_an_outage(claims: BodyStore) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError, match="source"):
        claims.write(NAME, broken())


@pytest.mark.parametrize("path", ["../a", "a/..", "./a", "a/.", "a", "a/b/c", "/a", "a//b"])
def test_a_name_is_no_way_out(path: str) -> None:
    assert is_name("a/b/1-" + "0" * 32)
    assert not is_name(f"{path}/1-" + "0" * 32)


@pytest.mark.parametrize("id", [None, "", "lkc-1", "a/b c", "../..", "x" * 500])
def test_every_cluster_has_a_name(id: str | None) -> None:
    assert is_name(new_name(cluster_name(id), "films", 0, "0" * 32))


def test_a_place_that_cannot_be_reached_is_away(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BodyStoreUnavailable):
        open_body_store(str(tmp_path / "file")).write(NAME, iter([b"x"]))


def test_a_url_that_nobody_knows_is_refused() -> None:
    with pytest.raises(HandlerError, match="nonsense"):
        open_body_store("nonsense://x")
