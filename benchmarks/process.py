"""What a broker's processes use: processor time and memory, from Linux's /proc."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SAMPLE_SECONDS = 0.1
# The shared part of memory is counted by walking all pages, which is felt by the process.
_PSS_EVERY_SAMPLES = 10


def tree(pid: int) -> list[int]:
    """The process and all its living descendants."""
    found = [pid]
    for parent in found:
        found.extend(_children(parent))
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    for listing in PROC.glob(f"{pid}/task/*/children"):
        try:
            children.extend(map(int, listing.read_text().split()))
        except OSError:
            continue  # the thread has ended
    return children


def stat_fields(text: str) -> list[str]:
    """The fields of /proc/PID/stat from the third (state) on; the name may hold any character."""
    return text.rpartition(")")[2].split()


def cpu_seconds(pid: int) -> float:
    """User and system time of the process, its living descendants and its ended children."""
    ticks = 0
    for member in tree(pid):
        try:
            fields = stat_fields((PROC / str(member) / "stat").read_text())
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / _TICKS_PER_SECOND


def started_at(pid: int) -> float:
    """When the process began, as Unix time, to a hundredth of a second."""
    ticks = int(stat_fields((PROC / str(pid) / "stat").read_text())[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / _TICKS_PER_SECOND
    return time.time() - age


def kilobytes(text: str, name: str) -> int:
    """The value of a `Name:   123 kB` line, 0 when there is none."""
    for line in text.splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    return 0


def resident_bytes(pid: int) -> int:
    """Resident memory of the process and its descendants; pages they share count once each."""
    return sum(_read_kilobytes(member, "status", "VmRSS") for member in tree(pid)) * 1024


def proportional_bytes(pid: int) -> int:
    """Resident memory of the same, every page divided among those who share it."""
    return sum(_read_kilobytes(member, "smaps_rollup", "Pss") for member in tree(pid)) * 1024


def peak_bytes(pid: int) -> int:
    """The kernel's own record of the most that the process itself had resident so far."""
    return _read_kilobytes(pid, "status", "VmHWM") * 1024


def _read_kilobytes(pid: int, file: str, name: str) -> int:
    try:
        return kilobytes((PROC / str(pid) / file).read_text(), name)
    except OSError:
        return 0


class MemoryWatch:
    """Samples a process tree's memory in a thread for as long as its block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-watch", daemon=True)
        self.rss_peak_bytes = 0
        self.pss_peak_bytes = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.rss_peak_bytes = max(self.rss_peak_bytes, peak_bytes(self._pid))

    def _sample(self) -> None:
        samples = 0
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.rss_peak_bytes = max(self.rss_peak_bytes, resident_bytes(self._pid))
            if samples % _PSS_EVERY_SAMPLES == 0:
                self.pss_peak_bytes = max(self.pss_peak_bytes, proportional_bytes(self._pid))
            samples += 1
