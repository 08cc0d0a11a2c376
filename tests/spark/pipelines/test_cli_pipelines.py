"""`headrace pipeline` where no Spark is needed: definitions, states, aliases, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.client.kafkas import Kafka

from headrace import cli
from headrace.cli.pipeline.loading import load_pipeline
from headrace.spark import sessions
from headrace.spark.errors import PipelineError
from headrace.spark.pipelines import launcher
from headrace.spark.pipelines.runner import Runner
from headrace.spark.pipelines.version_folder import VersionFolder

CODE = """
from headrace.spark import Folder, pipeline

@pipeline(source="in", sink="out", version=2)
def copied(events):
    return events

@pipeline(source=["in"][0], sink=Folder("kept"))
def kept(events):
    return events

@pipeline(source="in", sink="news", version=2, start="latest")
def news(events):
    return events
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with two pipelines, in the working directory."""
    name = f"pipelines_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_definitions_are_listed(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run_command(["pipeline", "list", module]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:5] == ["copied", "2", "in", "topic", "out.v2"]
    assert lines[2][:3] == ["kept", "1", "in"]


def test_states_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = VersionFolder(tmp_path, "copied", 2)
    home.write_state({"state": "running", "batch": 7, "updated_ms": 0})
    assert cli.run_command(["pipeline", "status", "--home", str(tmp_path)]) == 0
    assert "copied  2        killed  7" in capsys.readouterr().out
    assert cli.run_command(["pipeline", "status", "-o", "json", "--home", str(tmp_path)]) == 0
    assert '"batch": 7' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "nobody"], "nobody has never run here"),
        (["stop", "nobody"], "nobody is not running"),
        (["list", "no_such_module"], "there is no module"),
        (["run", "MODULE:copid", "-b", "KAFKA"], "did you mean MODULE:copied?"),
        (["run", "MODULE", "-b", "KAFKA"], "defines no pipeline ''"),
        (["run", "MODULE:copied", "-b", "127.0.0.1:1"], "no broker answers"),
        (["replay", "MODULE:copied", "-b", "KAFKA", "--window", "1-5"], "01:00-05:00"),
        (["compare", "MODULE:copied", "-b", "KAFKA"], "no version of copied is live"),
        (["switch", "MODULE:copied", "-b", "KAFKA", "--force"], "there is no topic out.v2"),
        (["switch", "MODULE:kept", "-b", "KAFKA", "--force"], "there is no folder"),
    ],
)
def test_what_goes_wrong_is_said_in_a_line(
    module: str,
    headrace_kafka: Kafka,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    given = [
        each.replace("MODULE", module).replace("KAFKA", headrace_kafka.bootstrap)
        for each in arguments
    ]
    if arguments[0] in ("status", "stop", "run", "replay"):
        given += ["--home", str(tmp_path / "home")]
    assert cli.run_command(["pipeline", *given]) == 1
    assert words.replace("MODULE", module) in capsys.readouterr().err


def test_a_folder_is_switched_and_dropped(
    module: str, headrace_kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version in ("v1", "v2"):
        (tmp_path / "kept" / version).mkdir(parents=True)
    there = ["-b", headrace_kafka.bootstrap, "--home", str(tmp_path / "home")]
    for version in ("1", "2"):
        switch = ["pipeline", "switch", f"{module}:kept", "--to", version, *there]
        assert cli.run_command(switch) == 1
        assert "it is unknown whether it is complete" in capsys.readouterr().err
        VersionFolder(tmp_path / "home", "kept", int(version)).write_state({"state": "stopped"})
        assert cli.run_command(switch) == 0
        assert (tmp_path / "kept" / "live").resolve().name == f"v{version}"
    kept = VersionFolder(tmp_path / "home", "kept", 1)
    elsewhere = tmp_path / "elsewhere" / "v1"
    for checkpoint in (elsewhere, elsewhere.with_name("v1-letters")):
        checkpoint.mkdir(parents=True)
    kept.write_state({"state": "finished", "checkpoint": str(elsewhere)})
    drop = ["pipeline", "drop", f"{module}:kept", *there, "--version"]
    with kept.locked():
        assert cli.run_command([*drop, "1"]) == 1
    assert "is running already" in capsys.readouterr().err
    assert cli.run_command([*drop, "2"]) == 1
    assert "is live" in capsys.readouterr().err
    assert cli.run_command([*drop, "1"]) == 0
    assert not (tmp_path / "kept" / "v1").exists()
    # Its checkpoint as well, wherever it was: a new run must not go on from there.
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not kept.folder.exists()


def test_half_a_version_is_neither_run_nor_made_live(
    module: str, headrace_kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = [f"{module}:kept", "-b", headrace_kafka.bootstrap, "--home", str(tmp_path / "home")]
    (tmp_path / "kept" / "v1").mkdir(parents=True)
    home = VersionFolder(tmp_path / "home", "kept", 1)
    home.write_state({"state": "dropping"})
    assert cli.run_command(["pipeline", "run", *target]) == 1
    assert "is half dropped" in capsys.readouterr().err
    home.write_state({"state": "stopped", "is_bounded": True})
    assert cli.run_command(["pipeline", "switch", *target]) == 1
    assert "is not finished: it is stopped" in capsys.readouterr().err
    assert cli.run_command(["pipeline", "switch", *target, "--force"]) == 0
    assert (tmp_path / "kept" / "live").resolve().name == "v1"


class NoSpark:
    """Stands in where Spark is not what is asked about."""

    def stop(self) -> None:
        pass


def test_only_a_replay_reads_what_was_there_before(
    module: str, headrace_kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []

    def run(runner: Runner, _: object) -> None:
        begun.append((runner._pipeline.start, runner._pipeline.version))
        runner._folder.write_state({"state": "finished"})

    monkeypatch.setattr(Runner, "run", run)
    monkeypatch.setattr(sessions, "open_session", lambda *_: NoSpark())
    monkeypatch.setattr(launcher, "prepare_output", lambda *_: None)
    target = [f"{module}:news", "-b", headrace_kafka.bootstrap, "--home", str(tmp_path / "home")]
    assert cli.run_command(["pipeline", "replay", *target]) == 0
    assert cli.run_command(["pipeline", "run", *target]) == 0
    assert begun == [("earliest", 2), ("latest", 2)]


def test_an_empty_checkpoint_beside_the_one_in_use_is_refused(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoFiles:
        def __init__(self, _: object) -> None:
            pass

        def names(self, _: str) -> list[str]:
            return []

    monkeypatch.setattr(launcher, "HadoopFiles", NoFiles)
    pipeline = load_pipeline(f"{module}:news")
    known = {"checkpoint": "hdfs://c/news/v2", "batch": 7}
    with pytest.raises(PipelineError, match="checkpoint at hdfs://c/news/v2; from an empty one"):
        launcher.prepare_output(pipeline, cast(Any, NoSpark()), "/here", {}, known)
