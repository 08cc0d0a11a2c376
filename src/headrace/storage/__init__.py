"""The log on disk, in Apache Kafka's file format, durable by default."""

from __future__ import annotations

from headrace.storage.dirs.dirs import LogDir, LogDirError
from headrace.storage.files import File, FileSystem, OsFileSystem
from headrace.storage.log.appending import AppendInfo, Origin, codec_wanted
from headrace.storage.log.config import LogConfig
from headrace.storage.log.log import Log
from headrace.storage.log.reading import ColdRead
from headrace.storage.log.slices import Slice
from headrace.storage.log.sync import Syncer
from headrace.storage.manager import LogManager

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
