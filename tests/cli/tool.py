"""The command line tool as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

TIMEOUT_SECONDS = 60
TOOL = [sys.executable, "-P", "-m", "headrace"]

# Runs a verb against the test's broker: `headrace("topic", "list")`.
Headrace = Callable[..., "subprocess.CompletedProcess[str]"]
