"""kill -9 while partitions move between data folders, with producers and readers at work."""

from __future__ import annotations

from pathlib import Path

from tests.broker.wire import Wire
from tests.faults.processes import BrokerProcess
from tests.faults.test_kill import PARTITIONS, RESTART_SECONDS_MAX, Round

from headrace.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.errors import ErrorCode

KILLS = 8
ACKNOWLEDGED = 20_000


class MovingRound(Round):
    """Kills that come a moment after all partitions were asked to move."""

    dirs: tuple[Path, Path]
    asked = 0

    def __init__(self, broker: BrokerProcess, topic: str, seed: int):
        super().__init__(broker, topic, seed)
        self.seen: set[tuple[str, str]] = set()

    def _kill(self) -> None:
        self.move_all(self.dirs[self.kills % 2])
        # From the first copied bytes to the removal of the old folders.
        self._pause.wait(self.random.uniform(0.0, 0.2))
        super()._kill()
        found = places(self.dirs, self.topic)
        self.seen |= {(name, folder) for name in found for folder in found[name]}

    def move_all(self, target: Path) -> None:
        topic = AlterReplicaLogDirTopic(name=self.topic, partitions=list(range(PARTITIONS)))
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=str(target), topics=[topic])]
        )
        with Wire(self.broker.bootstrap) as wire:
            answer = wire.call(request, AlterReplicaLogDirsResponse, 2)
        codes = [row.error_code for each in answer.results for row in each.partitions]
        assert codes == [ErrorCode.NONE] * PARTITIONS
        self.asked += 1


def places(dirs: tuple[Path, Path], topic: str) -> dict[str, list[str]]:
    """Which data folders hold each partition under its own name."""
    found: dict[str, list[str]] = {}
    for folder in dirs:
        for index in range(PARTITIONS):
            if (folder / f"{topic}-{index}").is_dir():
                found.setdefault(f"{topic}-{index}", []).append(folder.name)
    return found


def test_acknowledged_records_survive_kills_while_partitions_move(tmp_path: Path) -> None:
    dirs = (tmp_path / "one", tmp_path / "other")
    settings = [
        f"log.dirs={dirs[0]},{dirs[1]}",
        f"metadata.log.dir={tmp_path / 'metadata'}",
        "log.segment.bytes=1048576",
        "log.flush.offset.checkpoint.interval.ms=300",
        # As slow as it takes for a kill to come in the middle of a copy, now and then.
        "replica.alter.log.dirs.io.max.bytes.per.second=20000000",
    ]
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        life = MovingRound(broker, "t", seed=3)
        life.dirs = dirs
        life.run(KILLS, ACKNOWLEDGED)
        life.check()
        assert life.asked >= KILLS // 2
        assert len(life.seen) > PARTITIONS  # some were here and there
        assert max(broker.start_seconds) <= RESTART_SECONDS_MAX
        broker.stop()
        found = places(dirs, "t")
        assert sorted(found) == [f"t-{index}" for index in range(PARTITIONS)]
        assert all(len(folders) == 1 for folders in found.values())
