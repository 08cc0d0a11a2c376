"""The log on disk, in Apache Kafka's file format, durable by default.

`manager.py` has all logs of a broker and saves them in rounds (`checkpoint_round.py`) to the
`checkpoint_files.py`. `log/` is the log of one partition, `recovery/` opens it, `cleaner/` compacts
it, and `dirs/` has the folders it is in. `files.py` is the port to the disk, `os_files.py` the real
disk, `names.py` the names of all files. `dump.py` and `verify.py` only read.
"""

from __future__ import annotations

from headrace.storage.dirs.log_dir import LogDir, LogDirError
from headrace.storage.files import File, FileSystem
from headrace.storage.log.appending import AppendInfo, Origin, codec_wanted
from headrace.storage.log.config import LogConfig
from headrace.storage.log.log import Log
from headrace.storage.log.reading import ColdRead
from headrace.storage.log.slices import Slice
from headrace.storage.log.sync import Syncer
from headrace.storage.manager import LogManager
from headrace.storage.os_files import OsFileSystem

__all__ = [
    "AppendInfo",
    "ColdRead",
    "File",
    "FileSystem",
    "Log",
    "LogConfig",
    "LogDir",
    "LogDirError",
    "LogManager",
    "Origin",
    "OsFileSystem",
    "Slice",
    "Syncer",
    "codec_wanted",
]
