"""What `headrace lag` prints: groups, measurements and causes, as tables or JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.cli.common.output import Output, show_json, show_rows
from headrace.cli.common.parsing import show_duration
from headrace.cli.common.stores import open_cli_store
from headrace.client.admin.groups import GroupRow, list_groups, no_group
from headrace.client.wire.cluster import ClusterClient
from headrace.lag.causes.findings import Finding
from headrace.lag.group_lag import GroupLag, PartitionLag
from headrace.lag.notices import partition_document
from headrace.lag.rules import matches
from headrace.lag.snapshot import Failures, compare
from headrace.lag.watch_machine import LagWatch, StoredLevel

GROUP_COLUMNS = ("group", "type", "state", "members", "lag", "behind", "worst")
PARTITION_COLUMNS = (
    "group", "topic", "partition", "committed", "end", "lag", "behind", "note", "member",
)  # fmt: skip
WATCH_COLUMNS = ("time", "group", "lag", "behind", "written/s", "read/s")
LEVEL_COLUMNS = (*WATCH_COLUMNS, "level")
RETRIES_MAX = 10_000


def group_filter(cluster: ClusterClient, names: Sequence[str] | None) -> Callable[[GroupRow], bool]:
    """A filter of groups by name or pattern; a plain name must exist."""
    if not names:
        return lambda row: True
    plain = [name for name in names if not set(name) & set("*?[")]
    if plain:
        known = {row.group for row in list_groups(cluster)}
        for name in plain:
            if name not in known:
                raise no_group(name, known)
    return lambda row: matches(row.group, names)


def group_document(group: GroupLag) -> dict[str, Any]:
    """A group with its partitions, for JSON."""
    return {
        "group": group.group,
        "type": group.type,
        "protocol": group.protocol,
        "state": group.state,
        "assignor": group.assignor,
        "members": None if group.members is None else len(group.members),
        "lag": group.lag,
        "behind_s": _seconds(group.behind_ms),
        "partitions": [partition_document(row) for row in group.partitions],
    }


def show_groups(
    groups: Sequence[GroupLag], output: Output, *, partitions: bool, behind: bool
) -> None:
    """Groups, or their partitions."""
    if output is Output.json:
        show_json([group_document(group) for group in groups])
    elif partitions:
        rows = [
            _partition_row(group.group, row)
            for group in groups
            for row in group.partitions
            if row.lag or not behind
        ]
        show_rows(rows, PARTITION_COLUMNS, output)
    else:
        show_rows([_group_row(group) for group in groups], GROUP_COLUMNS, output)


def show_measurement(
    groups: Sequence[GroupLag],
    before: Mapping[str, GroupLag],
    levels: LagWatch | None,
    output: Output,
) -> None:
    """One measurement of several: a block of lines, or one JSON document a line."""
    rows = []
    for group in groups:
        change = compare([before.get(group.group, group), group])
        written = sum(flow.written for flow in change.flows.values())
        read = sum(flow.read for flow in change.flows.values())
        row: dict[str, Any] = {
            "time": time.strftime("%H:%M:%S", time.localtime(group.at_ms / 1000)),
            "group": group.group,
            "lag": group.lag,
            "behind": _duration(group.behind_ms),
            "written/s": round(change.per_s(written), 1) if change.watched_s else None,
            "read/s": round(change.per_s(read), 1) if change.watched_s else None,
        }
        if levels is not None:
            row["level"] = levels.levels.get(group.group, StoredLevel()).level.word
        if output is Output.json:
            extra = {name: row[name] for name in ("written/s", "read/s", "level") if name in row}
            print(json.dumps({"at_ms": group.at_ms, **group_document(group), **extra}), flush=True)
        rows.append(row)
    if output is Output.table:
        show_rows(rows, WATCH_COLUMNS if levels is None else LEVEL_COLUMNS, output)
        print(flush=True)


def show_findings(group: GroupLag, findings: Sequence[Finding], output: Output) -> None:
    """The group, then the causes, the likeliest first."""
    if output is Output.json:
        show_json({**group_document(group), "causes": [finding.document() for finding in findings]})
        return
    row = {name: value for name, value in _group_row(group).items() if value is not None}
    print("  ".join(f"{name} {value}" for name, value in row.items()))
    for number, finding in enumerate(findings):
        print(f"\n{'also possible' if number else 'likely cause'}: {finding.cause.value}")
        for line in finding.evidence:
            print(f"  - {line}")
        for remedy in finding.remedies:
            print(f"  * {remedy.text}")
            if remedy.command:
                print(f"      {remedy.command}")


def waiting_retries(url: str) -> dict[str, Failures]:
    """What waits for another try in a store, by topic."""
    from headrace.store.failed_messages import MessageSelection

    found: dict[str, Failures] = {}
    with open_cli_store(url) as store:
        for parked in store.retries.find(MessageSelection(), RETRIES_MAX):
            topic = parked.message.topic
            known = found.get(topic, Failures(topic))
            error = parked.failure.error.partition("\n")[0]
            found[topic] = known._replace(waiting=known.waiting + 1, error=error)
    return found


def _group_row(group: GroupLag) -> dict[str, Any]:
    worst = group.worst
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "members": None if group.members is None else len(group.members),
        "lag": group.lag,
        "behind": _duration(group.behind_ms),
        "worst": None if worst is None else f"{worst.topic}:{worst.partition}",
    }


def _partition_row(group: str, row: PartitionLag) -> dict[str, Any]:
    return {
        "group": group,
        "topic": row.topic,
        "partition": row.partition,
        "committed": row.committed,
        "end": row.end,
        "lag": row.lag,
        "behind": _duration(row.behind_ms),
        "note": _note(row),
        "member": row.member,
    }


def _note(row: PartitionLag) -> str | None:
    notes = [] if row.standing.value == "ok" else [row.standing.value]
    notes += [f"{row.lost} lost"] if row.lost else []
    notes += [f"{row.held} in open transactions"] if row.held else []
    return ", ".join(notes) or None


def _duration(ms: int | None) -> str | None:
    return None if ms is None else show_duration(ms)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
