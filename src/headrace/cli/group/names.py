"""The groups of a cluster by name, and what to say of one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headrace.cli.common.errors import CliError
from headrace.client.admin.groups import GroupRow, list_groups
from headrace.client.wire.cluster import Cluster


def find_groups(cluster: Cluster, names: list[str]) -> list[GroupRow]:
    """These groups; an error with the nearest name if one is not there."""
    known = {row.group: row for row in list_groups(cluster)}
    for name in names:
        if name not in known:
            raise no_group(name, known)
    return [known[name] for name in names]


def no_group(name: str, known: Iterable[str]) -> CliError:
    """The error of a group that is not there."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "headrace group list shows what there is"
    return CliError(f"there is no group {name!r}", hint)
