"""Servers that refuse to run as root, or should not: who runs them in the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import Any


def as_nobody(user: str) -> dict[str, Any]:
    """Arguments of Popen that give up root for `user`, or for nobody if there is none such."""
    if os.geteuid() != 0:
        return {}
    entry = _entry(user)
    # The folder that the tests were started in may be closed to that user.
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}


def folder_of(user: str, prefix: str) -> Path:
    """A temporary folder of that user's own; its path is short enough for a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    if os.geteuid() == 0:
        entry = _entry(user)
        shutil.chown(folder, entry.pw_uid, entry.pw_gid)
    return folder


def _entry(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return pwd.getpwnam("nobody")
