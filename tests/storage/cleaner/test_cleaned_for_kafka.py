"""Apache Kafka's own tool reads what the cleaner writes, and agrees with our indexes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.apache_kafka import java_tool
from tests.storage.cleaner.folders import START_MS, Folder

from headrace.storage import names
from headrace.storage.cleaner.options import LastRecord

# Gaps between offsets are what compaction leaves; everything else would be a complaint.
COMPLAINTS = re.compile(
    r"mismatch|error|exception|not found|out of order|corrupt|invalid|trailing", re.IGNORECASE
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A log cleaned twice: all codecs, tombstones, markers, an emptied batch, a horizon."""
    folder = Folder(tmp_path_factory.mktemp("cleaned") / "t-0")
    for number in range(300):
        folder.append([(f"k{number % 40}", f"v{number}"), (f"l{number}", "x")], codec=number % 5)
    folder.append([("k1", None), ("gone", None)], codec=4)
    folder.append([("k2", "no")], producer_id=5, base_sequence=0, transactional=True)
    folder.abort(5)
    folder.append([("k3", "yes")], producer_id=6, base_sequence=0, transactional=True)
    folder.commit(6)
    folder.append([("k3", "later")])
    last = {6: LastRecord(folder.next_offset - 3, 0)}
    folder.append([("z", "1")])
    folder.clean(now_ms=START_MS, last_records=last)
    folder.clean(now_ms=START_MS + 10, last_records=last)
    assert any(header.record_count == 0 for header in folder.headers())
    assert any(header.delete_horizon_ms for header in folder.headers())
    return folder


def dump(folder: Folder, suffix: str, *options: str) -> str:
    files = ",".join(str(path) for path in sorted(Path(folder.path).glob("*" + suffix)))
    return java_tool("dump-log", "--files", files, *options)


def test_every_record_is_read_with_its_offset_and_value(folder: Folder) -> None:
    output = dump(folder, names.LOG, "--deep-iteration", "--print-data-log")
    assert "isvalid: false" not in output
    dumped = re.findall(r"^\| offset: (\d+) .*? key: (\S+)(?: payload: (\S*))?$", output, re.M)
    expected = [(str(offset), key, value or "") for offset, key, value in folder.pairs()]
    assert [row for row in dumped if not row[2].startswith("endTxnMarker")] == expected
    assert complaints(output) == []


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
def test_the_indexes_pass_its_sanity_check(folder: Folder, suffix: str) -> None:
    assert complaints(dump(folder, suffix)) == []
    assert complaints(dump(folder, suffix, "--index-sanity-check")) == []


def complaints(output: str) -> list[str]:
    return [
        line
        for line in output.splitlines()
        if COMPLAINTS.search(line) and not line.startswith(("baseOffset", "| offset"))
    ]
