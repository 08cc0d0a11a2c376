"""What a pipeline leaves on this machine: who runs, who was killed, who is asked to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.errors import PipelineError
from headrace.spark.pipelines.homes import Home, homes


def test_a_pipeline_runs_once(tmp_path: Path) -> None:
    home = Home(tmp_path, "clicks", 1)
    assert not home.is_running
    with home.held():
        assert home.is_running
        with pytest.raises(PipelineError, match="runs already"), Home(tmp_path, "clicks", 1).held():
            raise AssertionError
        with Home(tmp_path, "clicks", 2).held():
            pass
    assert not home.is_running


def test_who_ended_without_a_word_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path, "clicks", 1)
    with home.held():
        home.write_state({"state": "running", "batch": 4})
        assert home.state() == {"name": "clicks", "version": 1, "state": "running", "batch": 4}
    assert home.state()["state"] == "killed"


def test_a_request_to_stop_is_for_those_who_run_now(tmp_path: Path) -> None:
    home = Home(tmp_path, "clicks", 1)
    with home.held():
        assert not home.is_asked_to_stop
        home.ask_to_stop()
        assert home.is_asked_to_stop
    with home.held():
        assert not home.is_asked_to_stop


def test_homes_are_found_by_name_and_version(tmp_path: Path) -> None:
    for name, version in (("b", 2), ("a", 10), ("a", 9)):
        Home(tmp_path, name, version).write_state({"state": "finished"})
    (tmp_path / "a" / "vx").mkdir()
    (tmp_path / "a" / "vx" / "state.json").write_text("{}")
    assert [(home.name, home.version) for home in homes(tmp_path)] == [
        ("a", 9),
        ("a", 10),
        ("b", 2),
    ]
    assert [home.version for home in homes(tmp_path, "b")] == [2]
