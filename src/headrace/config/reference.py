"""The settings page of the docs, made from the rows.

`python -m headrace.config.reference > docs/settings.md` writes it; a test proves it is current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from headrace.config.broker_rows import BROKER_ROWS
from headrace.config.kinds import text_of
from headrace.config.settings import Setting
from headrace.config.topic_rows import TOPIC_ROWS

_HEAD = """\
# Settings

<!-- Made by `python -m headrace.config.reference > docs/settings.md`; do not edit. -->

Names, types and defaults are Apache Kafka's; where a default differs, the row says what Kafka's is.
An unknown name or a bad value is refused with the name, the reason and the nearest known name.

Broker settings are given with `--set NAME=VALUE`, or in the environment as `HEADRACE_CONFIG_NAME`
with `_` for `.` (`HEADRACE_CONFIG_NUM_PARTITIONS=3`). Those marked *cluster-wide* can also be
changed while the broker runs, through the Kafka admin API, for one broker or for all.
Topic settings are given when a topic is made or altered; a topic setting that is not given follows
the broker setting named in its row.
"""


def settings_page() -> str:
    """The whole page as Markdown."""
    return "\n".join(
        [
            _HEAD,
            "## Topic settings\n",
            *_sections(TOPIC_ROWS),
            "## Broker settings\n",
            *_sections(BROKER_ROWS),
        ]
    )


def _sections(rows: Iterable[Setting]) -> Iterable[str]:
    for row in rows:
        yield f"### {row.name}\n"
        yield f"{row.doc}\n"
        yield from (f"- {fact}" for fact in _facts(row))
        yield ""


def _facts(row: Setting) -> Iterable[str]:
    kind = row.kind.name.lower()
    yield f"Type: {kind}, in {row.unit}" if row.unit else f"Type: {kind}"
    default = text_of(row.default)
    shown = "not set" if default is None else f"`{default}`" if default else "empty"
    kafka = f" (Apache Kafka: {row.kafka_default})" if row.kafka_default else ""
    yield f"Default: {shown}{kafka}"
    if row.valid is not None:
        yield f"Valid: {row.valid.text}"
    if row.twins:
        yield "Follows: " + ", then ".join(f"`{twin.name}`" for twin in row.twins)
    if row.scope.value != "read-only":
        yield f"Can change while running: {row.scope.value}"
    if row.inert:
        yield f"No effect yet. {row.inert}"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
