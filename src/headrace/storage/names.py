"""File and folder names of a log, the same as Apache Kafka's."""

from __future__ import annotations

import re

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
TXN_CHECKSUM = ".txncrc"
SNAPSHOT = ".snapshot"
RECENT_BATCHES = ".batches"

DELETED = ".deleted"
CORRUPT = ".corrupt"
CLEANED = ".cleaned"
SWAP = ".swap"

SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, TXN_CHECKSUM)
DELETED_FOLDER = "-delete"
FUTURE_FOLDER = "-future"

EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
TEMPORARY = ".tmp"
FORMAT = "headrace.format"
META_PROPERTIES = "meta.properties"
BOOT = "headrace.boot"
ARRIVED = "headrace.arrived"
FOLDER_NAME_MAX = 255

_OFFSET_DIGITS = 20
_DELETED_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}-\d{1,10}\.[0-9a-f]{32}-delete\Z")
_FUTURE_NAME = re.compile(r"(?P<place>.+)\.[0-9a-f]{32}-future\Z")
_FOLDER = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>\d{1,10})\Z")


def offset_name(offset: int, suffix: str) -> str:
    """The file name that starts with an offset, as `00000000000000000042.log`."""
    return f"{offset:020d}{suffix}"


def parse_offset(name: str, suffix: str) -> int | None:
    """The offset in a file name with exactly this suffix, or None for another kind of file."""
    digits = name.removesuffix(suffix)
    if len(digits) != _OFFSET_DIGITS or len(name) != len(digits) + len(suffix):
        return None
    return int(digits) if digits.isdecimal() else None


def folder_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def deleted_folder_name(topic: str, partition: int, unique: str) -> str:
    """The name of a folder that will be deleted, cut to fit the file system's 255 bytes."""
    tail = f"-{partition}.{unique}{DELETED_FOLDER}"
    return topic[: FOLDER_NAME_MAX - len(tail)] + tail


def future_folder_name(topic: str, partition: int, unique: str) -> str:
    """The name of a folder that a partition moves to; it may be longer than FOLDER_NAME_MAX."""
    return f"{topic}-{partition}.{unique}{FUTURE_FOLDER}"


def parse_future_folder(name: str) -> tuple[str, int] | None:
    """Topic and partition of a folder that a move was copying to, or None."""
    match = _FUTURE_NAME.match(name)
    return parse_folder(match["place"]) if match else None


def is_deleted_folder(name: str) -> bool:
    """Whether a name is one that `deleted_folder_name` or Kafka makes."""
    return _DELETED_NAME.match(name) is not None


def parse_folder(name: str) -> tuple[str, int] | None:
    """Topic and partition of a folder name, or None when it is not a partition's folder."""
    match = _FOLDER.match(name)
    return (match["topic"], int(match["partition"])) if match else None
