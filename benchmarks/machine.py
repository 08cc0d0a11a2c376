"""Facts about the machine that figures depend on, and what makes them repeatable."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.process import PROC, kilobytes

_SYNC_SAMPLES = 200
_SYNC_BYTES = 4096
_TOUCH_CHUNK = bytes(4 << 20)

Facts = dict[str, str]


def facts(folder: Path) -> Facts:
    """What a reader needs to judge the figures; `folder` is where the brokers' data lies."""
    memory = kilobytes((PROC / "meminfo").read_text(), "MemTotal") / 1024 / 1024
    sync_p50, sync_p99 = sync_latency_ms(folder)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": f"{os.cpu_count()} x {_cpu_model()}",
        "memory": f"{memory:.0f} GB",
        "kernel": platform.release(),
        "disk": f"{_filesystem(folder)}, fdatasync of 4 KiB {sync_p50:.2f} ms p50, "
        f"{sync_p99:.2f} ms p99",
        "load average": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        "python": platform.python_version(),
        "java": _first_line("java", "-version"),
        "go": _first_line("go", "version"),
    }


def sync_latency_ms(folder: Path) -> tuple[float, float]:
    """Median and 99th percentile of a 4 KiB append and its fdatasync."""
    path = folder / "sync-probe"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        samples = []
        for _ in range(_SYNC_SAMPLES):
            os.write(descriptor, bytes(_SYNC_BYTES))
            begun = time.perf_counter()
            os.fdatasync(descriptor)
            samples.append((time.perf_counter() - begun) * 1000)
    finally:
        os.close(descriptor)
        path.unlink()
    samples.sort()
    return samples[_SYNC_SAMPLES // 2], samples[_SYNC_SAMPLES * 99 // 100]


def touch_memory(folder: Path, size: int) -> None:
    """Have the kernel hold `size` bytes of free pages that were written to a moment ago.

    A virtual machine's first write to a page is many times slower, and its host may take idle
    pages back at any time, so this is done right before what is measured.
    """
    available = kilobytes((PROC / "meminfo").read_text(), "MemAvailable") * 1024
    room = min(size, available // 2, shutil.disk_usage(folder).free // 2)
    path = folder / "touch"
    with path.open("wb", buffering=0) as file:
        for _ in range(room // len(_TOUCH_CHUNK)):
            file.write(_TOUCH_CHUNK)
    path.unlink()
    os.sync()


def raise_descriptor_limit(wanted: int) -> int:
    """Raise this process's (and its children's) open file limit as far as it may; returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (ValueError, PermissionError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    elif soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def folder_bytes(folder: Path, *, without: str | None = None) -> int:
    """Bytes of disk that a folder's files take; files that vanish meanwhile count as nothing.

    Folders inside whose names begin with `without` are left out.
    """
    total = 0
    for parent, folders, names in os.walk(folder):
        if without is not None:
            folders[:] = [name for name in folders if not name.startswith(without)]
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except OSError:
                continue
    return total


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", (PROC / "cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else platform.machine()


def _filesystem(folder: Path) -> str:
    """The type of the file system that holds a folder: the longest mount point above it."""
    path, best, kind = str(folder.resolve()), "", "unknown"
    for line in (PROC / "mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _first_line(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return "none"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip().splitlines()[0]
