"""Partition folders that belong to no topic: found at a start, and renamed."""

from __future__ import annotations

import logging
import os

from headrace.metadata import Catalog
from headrace.storage import FileSystem, names
from headrace.storage.dirs.checkpoints import (
    CorruptCheckpoint,
    format_partition_metadata,
    parse_partition_metadata,
)

# The suffix of a folder that was set aside.
STRAY_FOLDER = "-stray"

log = logging.getLogger(__name__)


def rename_stray_folders(files: FileSystem, log_dir: str, catalog: Catalog) -> None:
    """Rename the partition folders that belong to no topic, so that they are never served.

    Folders of a deleted topic are marked for removal. Folders of a topic that was never deleted are
    set aside for a person to check: the catalog may be wrong.
    """
    for name in files.list(log_dir) if files.exists(log_dir) else ():
        folder = os.path.join(log_dir, name)
        place = names.parse_folder(name)
        if place is None or not files.is_dir(folder):
            continue
        topic, topic_id = catalog.get(place[0]), _topic_id(files, folder)
        if topic is not None and place[1] < topic.partitions:
            if topic_id == topic.id:
                continue
            if topic_id is None:
                # It was never synced, so it is empty: a crash right after it was created.
                path = os.path.join(folder, names.PARTITION_METADATA)
                files.write(path, format_partition_metadata(topic.id))
                continue
        if topic_id in catalog.deleted:
            target = names.deleted_folder_name(*place, os.urandom(16).hex())
        else:
            tail = f"-{place[1]}.{os.urandom(16).hex()}{STRAY_FOLDER}"
            target = place[0][: names.FOLDER_NAME_MAX - len(tail)] + tail
            log.warning("%s belongs to no topic; it is kept as %s", folder, target)
        files.rename(folder, os.path.join(log_dir, target))


def _topic_id(files: FileSystem, folder: str) -> bytes | None:
    try:
        return parse_partition_metadata(files.read(os.path.join(folder, names.PARTITION_METADATA)))
    except (FileNotFoundError, CorruptCheckpoint):
        return None
