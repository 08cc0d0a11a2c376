"""kafka-python's own integration tests, out of its source distribution, on any broker."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from tests.archives import unpack
from tests.interop.brokers import running
from tests.jars import CACHE

VERSION = version("kafka-python")

# The brokers that the suite starts for itself are set up like this.
SETTINGS = {"num.partitions": "4", "node.id": "0", "group.min.session.timeout.ms": "1000"}
APACHE_SETTINGS = {
    **SETTINGS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

# The version of Kafka whose calls each broker speaks; the suite sends those, negotiated or not.
SPOKEN = {"headrace": "4.2", "apache": "4.3"}

_FOLDER = "test/integration"
_RUN_SECONDS_MAX = 300
# A test that fails is tried again: the client has races of its own, whatever broker it speaks to.
# One of them: an answer to a metadata request sent before a subscription is taken for the newest,
# so that the topic is looked up only five minutes later.
_TRIES = 3
# The distribution leaves this file out; only brokers that the suite starts itself need more of it.
_SERVICE = """class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port


class SpawnedService:
    pass
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended ("passed", "failed" or "skipped"), with its last words if not passed."""

    result: str
    reason: str = ""

    @property
    def failed(self) -> bool:
        return self.result == "failed"


def run(broker: str, *, without: Collection[str] = ()) -> dict[str, Outcome]:
    """Run the suite on "headrace" or "apache", without some tests; the outcomes by test name."""
    settings = APACHE_SETTINGS if broker == "apache" else SETTINGS
    with running(broker, settings) as bootstrap:
        deselected = [f"--deselect={_FOLDER}/{name}" for name in without]
        outcomes = _run(bootstrap, SPOKEN[broker], [_FOLDER, *deselected])
        for _ in range(_TRIES - 1):
            failed = [f"{_FOLDER}/{name}" for name, row in outcomes.items() if row.failed]
            if not failed:
                break
            outcomes.update(_run(bootstrap, SPOKEN[broker], failed))
    return outcomes


def _run(bootstrap: str, kafka_version: str, chosen: list[str]) -> dict[str, Outcome]:
    source = _source()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        environment = {
            **os.environ,
            "KAFKA_URI": f"kafka://{bootstrap}",
            "KAFKA_VERSION": kafka_version,
            "KAFKA_ROOT": folder,
        }
        command = [sys.executable, "-m", "pytest", *chosen, f"--junitxml={report}"]
        command += ["-q", "-p", "no:headrace", "-p", "no:xdist", "-p", "no:hypothesispytest"]
        command += ["-W", "ignore", "-o", "log_level=WARNING", "-o", "addopts=", "--timeout=60"]
        # These start brokers of their own, with certificates that the distribution leaves out.
        command += [f"--ignore={_FOLDER}/test_ssl_integration.py"]
        done = subprocess.run(
            command,
            cwd=source,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS_MAX,
            check=False,
        )
        if not report.exists():
            raise RuntimeError(f"the suite did not run:\n{done.stdout}{done.stderr}")
        return _outcomes(report)


def _outcomes(report: Path) -> dict[str, Outcome]:
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        module = case.attrib["classname"].removeprefix("test.integration.")
        name = f"{module}.py::{case.attrib['name']}"
        outcomes[name] = Outcome("passed")
        for kind, result in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = case.find(kind)
            if found is not None:
                outcomes[name] = Outcome(result, found.attrib.get("message", ""))
    return outcomes


def _source() -> Path:
    """The unpacked source distribution of the installed version, fetched once."""
    folder = CACHE / "kafka-python" / VERSION
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as temp:
        command = [*_pip(), "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run(
            [*command, "--dest", temp, f"kafka-python=={VERSION}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"pip could not fetch kafka-python:\n{done.stdout}{done.stderr}")
        (archive,) = Path(temp).glob("*.tar.gz")
        unpack(archive, Path(temp))
        (source,) = (path for path in Path(temp).iterdir() if path.is_dir())
        (source / "test" / "__init__.py").touch()
        (source / "test" / "service.py").write_text(_SERVICE, encoding="utf-8")
        # Its tests are to run on the installed package.
        shutil.rmtree(source / "kafka")
        source.rename(folder)


def _pip() -> list[str]:
    for command in (
        [sys.executable, "-m", "pip"],
        ["uv", "tool", "run", "--quiet", "pip"],
        ["python3", "-m", "pip"],
    ):
        if shutil.which(command[0]) is not None:
            asked = subprocess.run([*command, "--version"], capture_output=True, check=False)
            if asked.returncode == 0:
                return command
    raise RuntimeError("neither pip nor uv is there to fetch the kafka-python distribution")
