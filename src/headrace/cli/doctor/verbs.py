"""`headrace doctor`: check whether this machine is fit to run a broker."""

from __future__ import annotations

import importlib
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.common.output import Output, OutputOption, show_rows
from headrace.config import environment

FILES_WANTED = 10_000
FREE_BYTES_WANTED = 1 << 30
SYNC_MS_WANTED = 20.0
SYNC_ROUNDS = 20
JAVA_WANTED = 17
JAVA_SECONDS = 20

Verdict = tuple[bool, str]


def doctor(
    *,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder to check.", show_default="the usual one"),
    ] = None,
    output: OutputOption = Output.table,
) -> None:
    """Check Python, the compiled parts, limits and the disk; exit code 1 if something is wrong."""
    folder = _nearest_existing(data_dir or environment.data_dir())
    checks: dict[str, Callable[[], Verdict]] = {
        "python": _python,
        "uvloop": lambda: _compiled("uvloop"),
        "crc32c": lambda: _compiled("crc32c"),
        "cramjam": lambda: _compiled("cramjam"),
        "open files": _open_files,
        "free disk": lambda: _free_disk(folder),
        "sync to disk": lambda: _sync(folder),
        "java": lambda: _java(find_spec("pyspark") is not None),
    }
    rows = []
    for name, check in checks.items():
        fine, finding = check()
        rows.append({"check": name, "ok": fine, "finding": finding})
    show_rows(rows, ("check", "ok", "finding"), output)
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


def _python() -> Verdict:
    return sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.platform()}"


def _compiled(module: str) -> Verdict:
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        return False, f"{error}; install the package again"
    return True, str(getattr(found, "__version__", "installed"))


def _open_files() -> Verdict:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fine = soft >= FILES_WANTED or soft == resource.RLIM_INFINITY
    advice = "" if fine else f"; raise it to {FILES_WANTED}: ulimit -n {min(FILES_WANTED, hard)}"
    return fine, f"limit {soft}{advice}"


def _free_disk(folder: Path) -> Verdict:
    free = shutil.disk_usage(folder).free
    return free >= FREE_BYTES_WANTED, f"{free / (1 << 30):.1f} GiB in {folder}"


def _sync(folder: Path) -> Verdict:
    """Median time of an fdatasync after a small write: what an acks=all producer waits for."""
    sync = getattr(os, "fdatasync", os.fsync)
    took_ms = []
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            for _ in range(SYNC_ROUNDS):
                file.write(bytes(512))
                start = time.perf_counter()
                sync(file.fileno())
                took_ms.append((time.perf_counter() - start) * 1000)
    except OSError as error:
        return False, f"cannot write in {folder}: {error.strerror}"
    median_ms = sorted(took_ms)[SYNC_ROUNDS // 2]
    return median_ms <= SYNC_MS_WANTED, f"{median_ms:.2f} ms in {folder}"


def _java(is_needed: bool) -> Verdict:
    """Java is needed by Spark only."""
    advice = f"install {JAVA_WANTED} or newer: apt-get install default-jre-headless"
    if not is_needed:
        advice = f"only pipelines on Spark need {JAVA_WANTED} or newer"
    home = environment.java_home()
    program = shutil.which("java") if home is None else str(home / "bin" / "java")
    if program is None:
        return not is_needed, f"not found; {advice}"
    try:
        printed = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return not is_needed, f"{error}; {advice}"
    found = re.search(r'version "(\d+)([^"]*)"', printed)
    if found is None or int(found[1]) < JAVA_WANTED:
        return not is_needed, f"{printed.splitlines()[0] if printed else 'no version'}; {advice}"
    return True, f"{found[1]}{found[2]}"


def _nearest_existing(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    while not folder.exists():
        folder = folder.parent
    return folder
