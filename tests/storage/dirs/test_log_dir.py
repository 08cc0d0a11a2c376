"""`meta.properties`, as Apache Kafka has it."""

from __future__ import annotations

import random

import pytest

from headrace.storage.dirs.log_dir import DirIdentity, directory_id

OWN = DirIdentity("SGVhZHJhY2VUZXN0c0tmaw", 3, "sSNTHFOQSdyHxXPi1mSmMA")


def test_identity_comes_back() -> None:
    assert DirIdentity.decode(OWN.encode()) == OWN


def test_file_of_apache_kafka_is_read() -> None:
    data = (
        b"#\n#Mon Jan 05 10:00:00 UTC 2026\ncluster.id=SGVhZHJhY2VUZXN0c0tmaw\n"
        b"directory.id=sSNTHFOQSdyHxXPi1mSmMA\nnode.id=3\nversion=1\n"
    )
    assert DirIdentity.decode(data) == OWN


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"version=1\n",
        b"version=1\ncluster.id=c\nnode.id=x\ndirectory.id=d\n",
        b"version=2\ncluster.id=c\nnode.id=1\ndirectory.id=d\n",
        b"version=1\ncluster.id=c\nnode.id=1\n",
        b"no rows at all\n",
    ],
)
def test_what_is_no_whole_identity_is_none(data: bytes) -> None:
    assert DirIdentity.decode(data) is None


def test_directory_ids_have_kafkas_form() -> None:
    ids = {directory_id(random.Random(seed).getrandbits(128)) for seed in range(100)}
    assert len(ids) == 100
    assert all(len(each) == 22 for each in ids)
    assert len(directory_id(0)) == 22
