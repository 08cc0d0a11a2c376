"""Verification: quiet about good folders, precise about bad ones, and never a writer."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tests.storage.cleaner.folders import START_MS, Folder
from tests.storage.cleaner.logs import Bench, end, put

from headrace.protocol.batch import HEADER_BYTES, build_batch, seal
from headrace.protocol.control import ControlType
from headrace.protocol.records import Record
from headrace.storage import Log, OsFileSystem, names
from headrace.storage.dirs import checkpoints
from headrace.storage.dump import dump
from headrace.storage.log.trimming import delete_oldest
from headrace.storage.verify import Finding, Severity, verify


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with two partitions, rolled segments, producers and an aborted transaction."""
    bench = Bench(tmp_path / "data")
    for partition in range(2):
        log = bench.log(partition)
        for number in range(60):
            put(
                log,
                [(f"k{number % 7}", "v" * 40)],
                timestamp=START_MS + number,
                producer_id=9,
                base_sequence=number,
                codec=number % 5,
            )
        put(log, [("a", "x")], producer_id=5, base_sequence=0, transactional=True)
        end(log, 5, ControlType.ABORT)
    bench.close()
    return tmp_path / "data"


def fingerprint(path: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def change(path: Path, edit: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def first_segment(data: Path, suffix: str) -> Path:
    return data / "t-0" / names.offset_name(0, suffix)


def test_a_good_folder_has_no_findings_and_is_not_changed(data: Path) -> None:
    before = fingerprint(data)
    assert list(verify(str(data))) == []
    assert list(verify(str(data / "t-0"))) == []
    assert fingerprint(data) == before


def test_every_flipped_bit_of_a_batch_is_found(data: Path) -> None:
    path = first_segment(data, names.LOG)
    original = path.read_bytes()
    size = HEADER_BYTES + int.from_bytes(original[8:12], "big") - 49
    # The second batch: its neighbours tell when its place in the log is wrong.
    for position in range(size, 2 * size, 3):
        bit = position % 8
        flipped = bytearray(original)
        flipped[position] ^= 1 << bit
        path.write_bytes(flipped)
        found = [f for f in verify(str(data)) if f.severity is not Severity.INFO]
        assert found, f"byte {position} bit {bit}"
        path.write_bytes(original)


def test_a_damaged_batch_is_an_error_at_its_position(data: Path) -> None:
    path = first_segment(data, names.LOG)
    change(path, lambda data: data.__setitem__(HEADER_BYTES + 3, data[HEADER_BYTES + 3] ^ 4))
    finding = only(list(verify(str(data))))
    assert finding == Finding(Severity.ERROR, str(path), 0, "checksum differs")


def test_a_torn_tail_above_the_recovery_point_is_a_warning(data: Path) -> None:
    last = max((data / "t-0").glob("*.log"))
    with last.open("ab") as file:
        file.write(b"\0" * 30)
    finding = only(list(verify(str(data))))
    assert finding.severity is Severity.WARNING
    assert "torn tail" in finding.problem
    assert finding.file == str(last)


def test_synced_data_cut_away_is_an_error(data: Path) -> None:
    last = max((data / "t-0").glob("*.log"))
    change(last, lambda data: data.__delitem__(slice(-5, None)))
    found = list(verify(str(data)))
    assert Severity.ERROR in {finding.severity for finding in found}


def test_an_index_that_leads_astray_is_a_warning(data: Path) -> None:
    path = first_segment(data, names.OFFSET_INDEX)
    change(path, lambda data: data.__setitem__(7, data[7] ^ 1))
    finding = only(list(verify(str(data))))
    assert (finding.severity, finding.file) == (Severity.WARNING, str(path))


@pytest.mark.parametrize("suffix", [names.OFFSET_INDEX, names.TIME_INDEX])
def test_a_cut_index_and_one_that_does_not_ascend_are_warnings(data: Path, suffix: str) -> None:
    path = first_segment(data, suffix)
    original = path.read_bytes()
    width = 8 if suffix == names.OFFSET_INDEX else 12
    path.write_bytes(original[:-1])
    assert only(list(verify(str(data)))).severity is Severity.WARNING
    path.write_bytes(original[width : 2 * width] + original[:width])
    assert "ascend" in only(list(verify(str(data)))).problem


def test_a_time_index_with_a_wrong_time_is_a_warning(data: Path) -> None:
    path = first_segment(data, names.TIME_INDEX)
    change(path, lambda data: data.__setitem__(7, data[7] ^ 1))
    assert str(path) in {finding.file for finding in verify(str(data))}


def test_a_missing_abort_marker_is_an_error(data: Path) -> None:
    path = next((data / "t-0").glob("*.txnindex"))
    change(path, lambda data: data.__setitem__(slice(18, 26), (10).to_bytes(8, "big")))
    assert any(f.severity is Severity.ERROR and f.file == str(path) for f in verify(str(data)))


def test_a_damaged_snapshot_is_a_warning(data: Path) -> None:
    path = max((data / "t-0").glob("*.snapshot"))
    change(path, lambda data: data.__setitem__(12, data[12] ^ 1))
    files = {finding.file for finding in verify(str(data)) if finding.severity is Severity.WARNING}
    assert str(path) in files


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "t-0/leader-epoch-checkpoint",
        "t-0/partition.metadata",
    ],
)
def test_a_damaged_checkpoint_is_an_error(data: Path, name: str) -> None:
    path = data / name
    path.write_bytes(b"nonsense")
    assert any(f.severity is Severity.ERROR and f.file == str(path) for f in verify(str(data)))


def test_a_flipped_digit_in_a_checkpoint_is_an_error(data: Path) -> None:
    path = data / "recovery-point-offset-checkpoint"
    change(path, lambda data: data.__setitem__(-2, data[-2] ^ 1))
    assert only(list(verify(str(data)))).severity is Severity.ERROR


def test_a_log_shorter_than_its_checkpoints_is_an_error(data: Path) -> None:
    for path in (data / "t-0").glob("*"):
        if path.name[:20].isdigit():
            path.unlink()
    first_segment(data, names.LOG).touch()
    problems = [f.problem for f in verify(str(data)) if f.severity is Severity.ERROR]
    assert any("which ends at 0" in problem for problem in problems)


def test_leftovers_are_told(data: Path) -> None:
    (data / "t-0" / "00000000000000000000.log.cleaned").touch()
    (data / "gone-0.0123456789abcdef-delete").mkdir()
    (data / "t-0" / "00000000000000000777.index").touch()
    severities = sorted(finding.severity for finding in verify(str(data)))
    assert severities == [Severity.INFO, Severity.INFO, Severity.WARNING]


def test_records_that_a_producer_sent_malformed_are_a_warning(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "t-0")
    batch = build_batch([Record(0, START_MS, b"a", b"b")])
    batch[HEADER_BYTES] = 0x7F
    seal(batch, 0)
    folder.append_raw(batch)
    folder.seal()
    finding = only(list(verify(folder.path)))
    assert finding.severity is Severity.WARNING
    assert "do not unpack" in finding.problem


def test_overlapping_segments_are_an_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "t-0")
    folder.append([("a", "1"), ("b", "1")])
    folder.roll()
    folder.append([("c", "1")])
    folder.seal()
    for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
        path = Path(folder.path_of(2, suffix))
        path.rename(folder.path_of(1, suffix))
    assert Severity.ERROR in {finding.severity for finding in verify(folder.path)}


def test_whole_batches_behind_a_bad_length_make_it_no_torn_tail(data: Path) -> None:
    last = max((data / "t-0").glob("*.log"))
    (data / checkpoints.RECOVERY_POINT).unlink()
    change(last, lambda data: data.__setitem__(8, 0x7F))
    findings = [finding for finding in verify(str(data)) if finding.file == str(last)]
    assert [(f.severity, f.position) for f in findings] == [(Severity.ERROR, 0)]


def test_what_lies_behind_a_bad_length_is_checked_as_well(data: Path) -> None:
    path = first_segment(data, names.LOG)
    change(path, lambda data: data.__setitem__(8, 0x7F))
    change(path, lambda data: data.__setitem__(-1, data[-1] ^ 1))
    errors = [finding for finding in verify(str(data)) if finding.severity is Severity.ERROR]
    assert [finding.file for finding in errors] == [str(path)] * 2


def test_what_a_recovery_set_aside_is_told(data: Path) -> None:
    path = first_segment(data, names.LOG)
    aside = path.with_name(path.name + names.CORRUPT)
    aside.write_bytes(path.read_bytes())
    finding = only(list(verify(str(data))))
    assert (finding.severity, finding.file) == (Severity.INFO, str(aside))


@pytest.mark.parametrize("look", [verify, dump], ids=["verify", "dump"])
def test_files_are_opened_for_reading_only(
    data: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[str], Iterable[object]]
) -> None:
    opened = []

    def watched(path: str, flags: int, *more: int) -> int:
        opened.append(flags)
        return os_open(path, flags, *more)

    os_open = os.open
    monkeypatch.setattr(os, "open", watched)
    list(look(str(data)))
    assert opened
    assert not [flags for flags in opened if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)]


class BusyFolder(OsFileSystem):
    """A folder in which something happens right after it was listed, or a size was asked for."""

    def __init__(self) -> None:
        super().__init__(read_only=True)
        self.after_list: Callable[[], object] = lambda: None
        self.unseen_bytes = 0

    def list(self, path: str) -> list[str]:
        found = super().list(path)
        self.after_list()
        return found

    def size(self, path: str) -> int:
        unseen, self.unseen_bytes = self.unseen_bytes, 0
        return super().size(path) - unseen


def in_use(path: Path, batches: int = 60) -> tuple[Bench, Log]:
    bench = Bench(path)
    log = bench.log()
    for number in range(batches):
        put(log, [(f"k{number}", "v" * 40)], producer_id=9, base_sequence=number)
    return bench, log


@pytest.mark.parametrize("look", [verify, dump], ids=["verify", "dump"])
def test_what_a_running_broker_deletes_meanwhile_is_no_finding(
    tmp_path: Path, look: Callable[..., Iterable[object]]
) -> None:
    bench, log = in_use(tmp_path)
    fs = BusyFolder()

    def delete() -> None:
        fs.after_list = lambda: None
        bench.manager.checkpoint()
        bench.manager.checkpoint()
        delete_oldest(log, 2, START_MS)

    fs.after_list = lambda: setattr(fs, "after_list", delete)  # when the partition is listed
    found = list(look(str(tmp_path), fs=fs))
    assert log.start_offset > 0
    if look is verify:
        assert [f for f in found if isinstance(f, Finding) and f.severity != Severity.INFO] == []


def test_an_append_that_is_under_way_is_no_finding(tmp_path: Path) -> None:
    _, log = in_use(tmp_path, batches=5)
    fs = BusyFolder()
    fs.unseen_bytes = 10
    assert list(verify(log.dir, fs=fs)) == []
    os.truncate(log.active.file.path, log.active.size - 10)  # and one that never goes on is
    assert only(list(verify(log.dir, fs=fs))).severity is Severity.WARNING


def test_a_folder_in_use_stays_free_of_findings_while_a_log_grows(tmp_path: Path) -> None:
    bench, log = in_use(tmp_path)
    done = threading.Event()

    def write() -> None:
        for number in range(400):
            put(log, [(f"k{number % 9}", "v" * 50)], producer_id=9, base_sequence=60 + number)
            if number % 3 == 0:
                put(log, [("a", "x")], producer_id=5, base_sequence=number // 3, transactional=True)
                end(log, 5, ControlType.ABORT)
            if number % 50 == 0:
                bench.manager.checkpoint()
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    findings: list[Finding] = []
    while not done.is_set():
        findings += [f for f in verify(str(tmp_path)) if f.severity is Severity.ERROR]
    writer.join()
    assert findings == []
