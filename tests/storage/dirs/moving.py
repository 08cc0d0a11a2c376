"""Moves a log between the log dirs of a manager as the broker does, on one thread."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from tests.storage.batches import NOW_MS, flush

from headrace.storage import FileSystem, Log, LogConfig, LogManager
from headrace.storage.dirs.log_move import LogMove

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=150, max_message_bytes=600)
TOPIC_ID = bytes(range(16))
_seeds = count()  # no two lives name folders the same


def manager_on(
    fs: FileSystem,
    root: str = "",
    config: LogConfig = CONFIG,
    *,
    names: str = "ab",
    load: bool = True,
) -> LogManager:
    """A manager of the log dirs `a` and `b`, loaded by default."""
    dirs = [f"{root}/{name}" for name in names]
    manager = LogManager(fs, dirs, config, lambda: NOW_MS, rng=random.Random(next(_seeds)))
    manager.open()
    if load:
        manager.load()
    return manager


def begin_move(manager: LogManager, log: Log) -> LogMove:
    """Have a log move to the log dir where it is not."""
    target = next(each for each in manager.dirs if each is not manager.dir_of(log))
    move = manager.moves.begin(log, target)
    move.make_folder()
    manager.fs.sync_dir(target.path)
    return move


def copy_all(move: LogMove, between: Callable[[], None] = lambda: None) -> None:
    """Copy until the log can be swapped; something else happens between the turns."""
    while (turn := move.next_step(NOW_MS)) is not None:
        turn()
        between()


def finish_move(manager: LogManager, move: LogMove) -> None:
    """Bring a move to its end after the swap."""
    flush(move.log)
    assert move.has_arrived
    manager.moves.finish(move)
    manager.moves.forget(move)


def move_log(manager: LogManager, log: Log, between: Callable[[], None] = lambda: None) -> LogMove:
    """Move a log from one log dir to the other."""
    move = begin_move(manager, log)
    copy_all(move, between)
    assert move.can_swap
    manager.moves.swap(move)
    between()
    finish_move(manager, move)
    return move
