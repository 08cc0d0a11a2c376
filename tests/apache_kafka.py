"""Apache Kafka itself, from Maven Central: one KRaft node and its command line tools."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from tests.jars import CACHE, jars_with_dependencies

VERSION = "4.3.1"

# Short names of the command line tools; `java_tool` takes these or any full class name.
TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "server-start": "kafka.Kafka",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}

# Those of Kafka's own start script.
SERVER_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# A short life gains nothing from the optimising compiler or from parallel collection.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")

# What one node cannot have as Kafka ships it: everything else is left at its default.
_SINGLE_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_CLUSTER_ID = "SGVhZHJhY2VUZXN0c0tmaw"
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)
_START_SECONDS_MAX = 60.0
_STOP_SECONDS_MAX = 20.0


def classpath() -> str:
    """Kafka's server, tools and clients with all they need, and a logger that only warns."""
    jars = jars_with_dependencies(
        ("org.apache.kafka", "kafka_2.13", VERSION),
        ("org.apache.kafka", "kafka-tools", VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    )
    return os.pathsep.join(map(str, jars))


def java_command(
    main_class: str,
    *args: str,
    jvm: Sequence[str] = QUICK_JVM,
    log_level: str = "error",
    jars_first: Sequence[Path] = (),
) -> list[str]:
    """The command that runs a tool (short name or full class name) or a class of `jars_first`."""
    if shutil.which("java") is None:
        raise RuntimeError("java is not installed; try: apt-get install default-jdk-headless")
    level = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    places = os.pathsep.join([*map(str, jars_first), classpath()])
    return ["java", *jvm, level, "-cp", places, TOOLS.get(main_class, main_class), *args]


def java_tool(
    main_class: str,
    *args: str,
    stdin: str = "",
    timeout_s: float = 60.0,
    jvm: Sequence[str] = QUICK_JVM,
) -> str:
    """Run one tool to its end and return what it printed; raise with its output if it failed."""
    done = subprocess.run(
        java_command(main_class, *args, jvm=jvm),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{main_class} {' '.join(args)} ended with {done.returncode}:\n"
            f"{done.stdout}{done.stderr}"
        )
    return done.stdout


class ApacheKafka:
    """A single KRaft node on free loopback ports with Kafka's default settings.

    `settings` override `server.properties`. `data_dir` is kept when given (its partitions are in
    `data_dir/logs`), else a temporary folder that goes away on stop.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: Path | None = None,
        heap: str = "1g",
        jvm: Sequence[str] = SERVER_JVM,
    ) -> None:
        self.keeps_data = data_dir is not None
        self.data_dir = data_dir or Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        self.port = 0
        self._settings = dict(settings or {})
        self._jvm = (*jvm, f"-Xms{heap}", f"-Xmx{heap}")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def logs(self) -> Path:
        return self.data_dir / "logs"

    @property
    def server_log(self) -> Path:
        return self.data_dir / "server.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("Apache Kafka is not running")
        return self._process.pid

    def start(self) -> ApacheKafka:
        """Format the storage if it is new, start the node and wait for its first answer."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        # A restart is found where clients know it.
        port, controller_port = free_ports(2)
        self.port = self.port or port
        properties = self._write_properties(controller_port)
        if not (self.logs / "meta.properties").exists():
            self._format(properties)
        command = java_command("server-start", str(properties), jvm=self._jvm, log_level="warn")
        with self.server_log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._wait_until_ready()
        return self

    def stop(self) -> None:
        """Stop by SIGTERM, by SIGKILL when that takes too long; a temporary folder is removed."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if not self.keeps_data:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def kill(self) -> None:
        """End the node at once, as a crash does; `start` runs it again where it was."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def __enter__(self) -> ApacheKafka:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _write_properties(self, controller_port: int) -> Path:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}"
        rows = {
            **_SINGLE_NODE,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.logs),
            **self._settings,
        }
        rows["controller.quorum.voters"] = f"{rows['node.id']}@127.0.0.1:{controller_port}"
        path = self.data_dir / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        return path

    def _format(self, properties: Path) -> None:
        """Format the storage: as a copy of one that was formatted before, or by Kafka's tool."""
        if self._settings.keys() & {"node.id", "log.dirs"}:
            java_tool("storage", "format", "-t", _CLUSTER_ID, "-c", str(properties))
        else:
            shutil.copytree(_formatted(), self.logs, dirs_exist_ok=True)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS_MAX
        while not _answers(self.port):
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
            log = self.server_log.read_text(errors="replace")
            raise RuntimeError(f"Apache Kafka did not start:\n{log[-4000:]}")


def _formatted() -> Path:
    """A formatted log folder of a node with the default id, made once."""
    folder = CACHE / "formatted" / VERSION
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{VERSION}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temp:
                kafka = ApacheKafka(data_dir=Path(temp))
                properties = kafka._write_properties(free_ports(1)[0])
                java_tool("storage", "format", "-t", _CLUSTER_ID, "-c", str(properties))
                kafka.logs.rename(folder)
    return folder


def _answers(port: int) -> bool:
    """Whether a broker on this port answers ApiVersions, which Kafka does only when it serves."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(10)) > 4
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Different loopback ports that nobody listened on a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [taken.getsockname()[1] for taken in sockets]
    for taken in sockets:
        taken.close()
    return ports
