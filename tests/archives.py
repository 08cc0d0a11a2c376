"""Unpacking what the tests download."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar file; nothing of it lands outside of the folder, where Python can see to it."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # Debian 12's Python does not have it
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)
