"""Moves of partitions from one log dir to another while they are served (AlterReplicaLogDirs)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.protocol.errors import ErrorCode, KafkaError
from headrace.protocol.partitions import TopicPartition
from headrace.storage import names

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.storage import Log, LogDir
    from headrace.storage.dirs.log_move import LogMove

# How long to wait for a checkpoint or a compaction that swaps the files of a log.
SWAP_PAUSE_SECONDS = 0.01
# How soon a changed limit, or the end of a move, is noticed.
LIMIT_PAUSE_SECONDS = 0.2
# How long a client waits for a move that is almost done before another may start.
ENDING_SECONDS_MAX = 10.0

log = logging.getLogger(__name__)


class LogDirMover:
    """Moves one log at a time, in the order of the requests.

    Requests outlive the broker: a move that was not finished starts again.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._moves = node.logs.moves
        self._carrying: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Start the moves again that the last stop, or a crash, interrupted."""
        logs = self._node.logs
        wanted = dict(self._moves.wanted)
        found = [(logs.get(*place), log_dir) for place, log_dir in wanted.items()]
        moves = [
            self._moves.begin(records, log_dir)
            for records, log_dir in found
            if records is not None
            and log_dir.offline_error is None
            and records.offline_error is None
        ]
        if moves:
            self._node.spawn(self._resume(moves))

    async def _resume(self, moves: Sequence[LogMove]) -> None:
        await self._make_folders(moves)
        self._go_on()

    async def alter(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move partitions to log dirs; returns the error of each, or NONE.

        Durable when it returns. A move of the same partition to another folder is cancelled
        first, and that is all if the partition already is where it should be.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        begun: dict[TopicPartition, LogMove] = {}
        for place, path in wanted.items():
            errors[place] = ErrorCode.NONE
            try:
                move = await self._ask(place, path)
                if move is not None:
                    begun[place] = move
            except KafkaError as error:
                errors[place] = error.code
        try:
            # A cancelled move must not start again after a crash.
            await self._node.run_read(self._node.logs.sync_deletions)
        except OSError as error:
            log.warning("a cancelled move may start again after a crash: %s", error)
        failed = await self._make_folders(list(begun.values()))
        for place, move in begun.items():
            if move in failed:
                errors[place] = ErrorCode.KAFKA_STORAGE_ERROR
        self._go_on()
        return errors

    async def _ask(self, place: TopicPartition, path: str) -> LogMove | None:
        """The move to make now, if any; raises KafkaError, checking in Kafka's order."""
        node = self._node
        unique = "0" * 32
        if len(names.future_folder_name(*place, unique)) > names.FOLDER_NAME_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic's name is too long")
        target = next((each for each in node.logs.dirs if each.path == path), None)
        if target is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of log.dirs")
        if target.offline_error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
        partition = node.partitions.find(*place)
        if partition.error:
            raise KafkaError(partition.error)
        records = partition.log
        move = self._moves.get(records)
        if move is not None and move.has_swapped and self._carrying is not None:
            await asyncio.wait({self._carrying}, timeout=ENDING_SECONDS_MAX)
            move = self._moves.get(records)
        if move is not None and move.target is not target:
            if move.has_swapped:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the last move is not durable yet")
            self._moves.cancel(move)
            move = None
        if move is not None or records.deleted or node.logs.dir_of(records) is target:
            return None
        return self._moves.begin(records, target)

    async def _make_folders(self, moves: Sequence[LogMove]) -> set[LogMove]:
        """Create the folders of moves, durably; a move whose folder fails is cancelled."""
        fs = self._node.logs.fs
        failed: set[LogMove] = set()

        def make() -> None:
            for target in {move.target for move in moves}:
                its_moves = [move for move in moves if move.target is target]
                try:
                    for move in its_moves:
                        move.make_folder()
                    fs.sync_dir(target.path)
                except OSError as error:
                    log.error("cannot move partitions to %s: %s", target.path, error)
                    failed.update(its_moves)

        if moves:
            await self._node.run_read(make)
        for move in moves:
            move.has_folder = move not in failed
            if move in failed:
                self._moves.cancel(move)
            elif move.is_cancelled:  # in the meantime, and there was nothing to remove
                self._moves.remove_copy(move)
        return failed

    def _go_on(self) -> None:
        """Run the next move, unless one is under way."""
        if self._closed or (self._carrying is not None and not self._carrying.done()):
            return
        ready = (each for each in self._moves if each.has_folder and not each.has_swapped)
        move = next(ready, None)
        if move is not None:
            self._carrying = self._node.spawn(self._carry(move))
            self._carrying.add_done_callback(lambda _: self._go_on())

    async def _carry(self, move: LogMove) -> None:
        records, target = move.log, move.target.path
        name = f"{records.topic}-{records.partition}"
        try:
            if not await self._copy(move):
                return
        except Exception as error:
            if not move.is_cancelled:
                log.error(
                    "cannot move %s to %s, it stays where it is: %s",
                    name, target, error, exc_info=not isinstance(error, OSError),
                )  # fmt: skip
                self._moves.cancel(move)
            return
        finally:
            if not move.has_swapped:
                move.close()
        await self._confirm(move)
        if move.has_arrived:
            try:
                await self._node.run_read(self._moves.finish, move)
            except OSError as error:
                log.warning("%s has moved to %s, but cleaning up failed: %s", name, target, error)
            self._moves.forget(move)
            log.info("%s has moved to %s", name, target)

    async def _copy(self, move: LogMove) -> bool:
        """Copy a log and switch to the copy; False if the move was cancelled. Raises OSError."""
        node = self._node
        while not move.is_cancelled and not self._closed:
            check_online(move.log, move.source, move.target)
            turn = move.next_step(node.clock.now_ms())
            if turn is not None:
                began, before = node.loop.time(), move.copied_bytes
                await node.run_read(turn)
                await self._slow_down(move, move.copied_bytes - before, began)
            elif move.can_swap:
                self._moves.swap(move)
                return True
            else:
                await asyncio.sleep(SWAP_PAUSE_SECONDS)
        return False

    async def _slow_down(self, move: LogMove, copied_bytes: int, began: float) -> None:
        """Wait until the copied bytes are within the limit, which may change meanwhile."""
        node = self._node
        while not move.is_cancelled and not self._closed:
            limit = node.settings.int("replica.alter.log.dirs.io.max.bytes.per.second")
            early = began + copied_bytes / limit - node.loop.time()
            if early <= 0:
                return
            await asyncio.sleep(min(early, LIMIT_PAUSE_SECONDS))

    async def _confirm(self, move: LogMove) -> None:
        """Wait for a sync of the log in its new folder; a full disk may delay it."""
        node, records = self._node, move.log
        while not (move.has_arrived or records.deleted or records.offline_error):
            synced: asyncio.Future[OSError | None] = node.loop.create_future()
            node.syncer.request(records, synced.set_result)
            error = await synced
            if error is not None and not records.deleted:
                node.fail_log_dir(records.dir, error)
            if self._closed:
                return
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Start no more moves; one that is being copied starts again after a restart."""
        self._closed = True
        if self._carrying is not None:
            await asyncio.wait({self._carrying})


def check_online(records: Log, *dirs: LogDir) -> None:
    """Raise OSError if one of the disks has failed."""
    for log_dir in dirs:
        if log_dir.offline_error is not None:
            raise OSError(errno.EIO, "the log dir is offline", log_dir.path)
    if records.offline_error is not None:
        raise records.offline_error
