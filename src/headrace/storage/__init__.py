"""The log on disk, in Apache Kafka's file format, durable by default."""

from __future__ import annotations

from headrace.storage.appending import AppendInfo, Origin, codec_wanted
from headrace.storage.config import LogConfig
from headrace.storage.dirs import LogDir, LogDirError
from headrace.storage.files import File, FileSystem, OsFileSystem
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.storage.reading import ColdRead
from headrace.storage.slices import Slice
from headrace.storage.sync import Syncer

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
