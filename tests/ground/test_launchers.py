"""The launchers in a copy of the checkout: quick ones with stand-in tools, long ones for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 110
# What the launcher itself needs of a system, without any Python or uv.
BARE_TOOLS = ("bash", "env", "dirname", "cmp", "cp", "mkdir", "rm", "flock", "cat", "chmod")


def make_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(0o755)


class Checkout:
    """A copy of what ./headrace needs, and a PATH with only what is put on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root.parent / "bin"
        self.calls = root.parent / "calls"
        root.mkdir()
        self.path.mkdir()
        for name in ("headrace", "requirements.lock", "requirements-dev.lock", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)
        shutil.copytree(ROOT / "tools", root / "tools")
        for tool in BARE_TOOLS:
            found = shutil.which(tool)
            if found:
                (self.path / tool).symlink_to(found)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.root / "headrace", *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            cwd=self.path,
            env={**os.environ, "PATH": str(self.path)},
        )

    def add_stand_ins(self) -> None:
        """A Python that is new enough, and a uv that makes environments of it; both note calls."""
        python = f'case $* in *-c*) exit 0;; esac; echo "python $*" >>"{self.calls}"; echo "ran $*"'
        make_script(self.path / "python3", python)
        make_script(
            self.path / "uv",
            f'echo "uv $1 $2" >>"{self.calls}"\n'
            f'if [[ $1 == venv ]]; then mkdir -p "{self.root}/.venv/bin" '
            f'"{self.root}/.venv/lib/python3.11/site-packages"; '
            f'cp "{self.path}/python3" "{self.root}/.venv/bin/python"; fi',
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "a checkout")


def test_without_a_python_it_says_which_is_needed(checkout: Checkout) -> None:
    done = checkout.run("up")
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "apt-get install python3" in done.stderr


def test_an_old_python_is_not_taken(checkout: Checkout) -> None:
    make_script(checkout.path / "python3", "exit 1")
    assert "Python 3.11 or newer is needed" in checkout.run("up").stderr


def test_arguments_reach_the_tool_as_they_are(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    done = checkout.run("produce", "a topic", "*")
    assert done.stdout == "ran -P -m headrace produce a topic *\n"


def test_progress_of_the_first_use_is_not_on_standard_output(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    done = checkout.run("--version")
    assert done.stdout == "ran -P -m headrace --version\n"
    assert "making .venv" in done.stderr
    assert "installing the packages of requirements.lock" in done.stderr


def test_the_second_use_installs_nothing(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    checkout.run("--version")
    checkout.calls.unlink()
    done = checkout.run("--version")
    assert done.stderr == ""
    assert checkout.calls.read_text() == "python -P -m headrace --version\n"


def test_a_changed_lock_file_is_installed_into_the_same_environment(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    checkout.run("--version")
    with (checkout.root / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    checkout.calls.unlink()
    checkout.run("--version")
    assert checkout.calls.read_text().splitlines()[0] == "uv pip install"
    assert "uv venv" not in checkout.calls.read_text()


def test_first_starts_at_the_same_time_make_one_environment(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    starts = [
        subprocess.Popen(
            [checkout.root / "headrace", "--version"],
            env={**os.environ, "PATH": str(checkout.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    assert [start.wait(TIMEOUT_SECONDS) for start in starts] == [0] * 4
    for start in starts:
        start.communicate()
    assert checkout.calls.read_text().count("uv venv") == 1


def test_an_environment_of_the_tests_will_do(checkout: Checkout) -> None:
    checkout.add_stand_ins()
    make_script(checkout.root / ".venv" / "bin" / "python", 'echo "ran $*"')
    shutil.copy(ROOT / "requirements-dev.lock", checkout.root / ".venv")
    assert checkout.run("x").stderr == ""
    assert not checkout.calls.exists()


@pytest.mark.long
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_fresh_checkout_comes_to_a_working_tool(checkout: Checkout, tool: str) -> None:
    found = shutil.which(tool if tool == "uv" else "python3")
    if found is None:
        pytest.skip(f"{tool} is not here")
    shutil.copytree(ROOT / "src", checkout.root / "src")
    shutil.rmtree(checkout.path)
    without_uv = [
        folder for folder in os.environ["PATH"].split(":") if not (Path(folder) / "uv").exists()
    ]
    path = os.environ["PATH"] if tool == "uv" else ":".join(without_uv)
    done = subprocess.run(
        [checkout.root / "headrace", "settings", "num.partitions"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "num.partitions" in done.stdout


@pytest.mark.long
def test_an_installed_package_has_the_command_and_the_fixture(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip: list[str | Path] = [venv / "bin" / "python", "-m", "pip", "install", "-q", ROOT, "pytest"]
    subprocess.run(pip, check=True, timeout=TIMEOUT_SECONDS)
    version = subprocess.run(
        [venv / "bin" / "headrace", "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("headrace ")
    example = shutil.copy(ROOT / "examples" / "test_with_kit.py", tmp_path)
    tests: list[str | Path] = [
        venv / "bin" / "python",
        "-m",
        "pytest",
        "-q",
        "-c",
        "/dev/null",
        example,
    ]
    done = subprocess.run(
        tests, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert "2 passed" in done.stdout, done.stdout
