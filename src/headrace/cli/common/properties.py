"""Properties files, as Kafka's server.properties is one."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.common.errors import CliError


def read_properties(path: Path) -> dict[str, str]:
    """Read NAME=VALUE lines; `#` and `!` start comments, a trailing backslash continues a line."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CliError(f"cannot read the settings file {path}: {reason}") from None
    properties = {}
    for number, line in _logical_lines(text):
        name, equals, value = line.partition("=")
        if not equals:
            raise CliError(f"{path}:{number}: {line!r} is not NAME=VALUE")
        properties[name.strip()] = value.strip()
    return properties


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not pending and (not line or line[0] in "#!"):
            continue
        if line.endswith("\\"):
            pending += line[:-1]
            continue
        lines.append((number, pending + line))
        pending = ""
    if pending:
        lines.append((len(text.splitlines()), pending))
    return lines
