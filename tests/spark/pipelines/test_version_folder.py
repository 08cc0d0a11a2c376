"""The state of a version on this machine: running, killed, asked to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.version_folder import VersionFolder, known_versions


def test_a_pipeline_runs_once(tmp_path: Path) -> None:
    folder = VersionFolder(tmp_path, "clicks", 1)
    assert not folder.is_running
    with folder.locked():
        assert folder.is_running
        again = VersionFolder(tmp_path, "clicks", 1)
        with pytest.raises(PipelineError, match="is running already"), again.locked():
            raise AssertionError
        with VersionFolder(tmp_path, "clicks", 2).locked():
            pass
    assert not folder.is_running


def test_a_process_that_ended_without_a_last_state_was_killed(tmp_path: Path) -> None:
    folder = VersionFolder(tmp_path, "clicks", 1)
    with folder.locked():
        folder.write_state({"state": "running", "batch": 4})
        assert folder.state() == {"name": "clicks", "version": 1, "state": "running", "batch": 4}
    assert folder.state()["state"] == "killed"


def test_a_request_to_stop_is_for_the_running_process_only(tmp_path: Path) -> None:
    folder = VersionFolder(tmp_path, "clicks", 1)
    with folder.locked():
        assert not folder.is_asked_to_stop
        folder.ask_to_stop()
        assert folder.is_asked_to_stop
    with folder.locked():
        assert not folder.is_asked_to_stop


def test_versions_are_found_by_name_and_version(tmp_path: Path) -> None:
    for name, version in (("b", 2), ("a", 10), ("a", 9)):
        VersionFolder(tmp_path, name, version).write_state({"state": "finished"})
    (tmp_path / "a" / "vx").mkdir()
    (tmp_path / "a" / "vx" / "state.json").write_text("{}")
    assert [(folder.name, folder.version) for folder in known_versions(tmp_path)] == [
        ("a", 9),
        ("a", 10),
        ("b", 2),
    ]
    assert [folder.version for folder in known_versions(tmp_path, "b")] == [2]
