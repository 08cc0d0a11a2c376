"""Environment variables; no other module reads or sets them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headrace.config.broker_rows import BROKER_ROWS
from headrace.config.settings import ConfigError

SETTING_PREFIX = "HEADRACE_CONFIG_"
BOOTSTRAP = "HEADRACE_BOOTSTRAP"
DATA_DIR = "HEADRACE_DATA_DIR"
STORE = "HEADRACE_STORE"
LARGE = "HEADRACE_LARGE"
SPARK_HOME = "SPARK_HOME"

_BY_VARIABLE = {
    SETTING_PREFIX + row.name.upper().replace(".", "_"): row.name for row in BROKER_ROWS
}


def data_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Default data folder: HEADRACE_DATA_DIR, or `headrace` in the user's data home."""
    given = environ.get(DATA_DIR)
    if given:
        return Path(given)
    home = environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "headrace"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Folder for data that can be downloaded or built again: `headrace` in the user's cache."""
    home = environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "headrace"


def spark_home(environ: Mapping[str, str] = os.environ) -> str | None:
    """The folder of Spark from SPARK_HOME, or None."""
    return environ.get(SPARK_HOME) or None


def java_home(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder of Java from JAVA_HOME, or None; Spark prefers it to PATH."""
    given = environ.get("JAVA_HOME")
    return Path(given) if given else None


@contextmanager
def with_spark_home(home: Path) -> Iterator[None]:
    """Set SPARK_HOME for processes that start inside this context."""
    before = os.environ.get(SPARK_HOME)
    os.environ[SPARK_HOME] = str(home)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SPARK_HOME, None)
        else:
            os.environ[SPARK_HOME] = before


def bootstrap_servers(environ: Mapping[str, str] = os.environ) -> str:
    """Address of the cluster for commands: HEADRACE_BOOTSTRAP, or loopback."""
    return environ.get(BOOTSTRAP) or "127.0.0.1:9092"


def store_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """URL of the handlers' database for commands: HEADRACE_STORE, or None."""
    return environ.get(STORE) or None


def large_url(environ: Mapping[str, str] = os.environ) -> str:
    """Where claim checks keep their bodies: HEADRACE_LARGE, or `large` in the data folder."""
    return environ.get(LARGE) or str(data_dir(environ) / "large")


def broker_settings(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Broker settings such as HEADRACE_CONFIG_NUM_PARTITIONS=3; raises ConfigError if unknown."""
    given: dict[str, str] = {}
    for variable, value in environ.items():
        if variable.startswith(SETTING_PREFIX):
            name = _BY_VARIABLE.get(variable)
            if name is None:
                dotted = variable.removeprefix(SETTING_PREFIX).lower().replace("_", ".")
                try:
                    BROKER_ROWS.row(dotted)
                except ConfigError as error:
                    raise ConfigError(variable, error.reason, error.nearest) from None
            else:
                given[name] = value
    return given
