"""The lock files hold what pyproject.toml asks for."""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")


def wanted(lock: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    texts = list(project["project"]["dependencies"])
    if lock == "requirements-dev.lock":
        for group in project["dependency-groups"].values():
            texts += group
    return [Requirement(text) for text in texts]


def locked(lock: str) -> dict[str, list[Version]]:
    """Versions by name; a name may be there twice, for different platforms or Pythons."""
    versions: dict[str, list[Version]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        pin = re.match(r"([A-Za-z0-9._-]+)==([^ ;\\]+)", line)
        if pin:
            versions.setdefault(canonicalize_name(pin[1]), []).append(Version(pin[2]))
    return versions


@pytest.mark.parametrize("lock", LOCKS)
def test_every_dependency_is_locked_within_its_range(lock: str) -> None:
    versions = locked(lock)
    for requirement in wanted(lock):
        pinned = versions.get(canonicalize_name(requirement.name))
        assert pinned, f"{requirement.name} is not in {lock}: run tools/lock"
        assert all(version in requirement.specifier for version in pinned), (
            f"{lock} has {requirement.name} {pinned}, {requirement} is wanted: run tools/lock"
        )


def test_the_development_lock_holds_the_core_lock() -> None:
    core, development = map(locked, LOCKS)
    assert core.items() <= development.items()


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_line_names_a_host(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    assert not [line for line in lines if "://" in line or line.startswith("--")]
    for pin, following in itertools.pairwise(lines):
        if "==" in pin:
            assert following.strip().startswith("--hash=sha256:"), pin
