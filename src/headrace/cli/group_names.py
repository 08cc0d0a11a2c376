"""The groups of a cluster by name, and what to say of one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.cli.errors import CliError
from headrace.client.cluster import BrokerAddress, Cluster
from headrace.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse

# Members of these share out the partitions among themselves; in others the broker does.
CLASSIC = "classic"
EMPTY_STATES = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group as its coordinator lists it; older brokers say neither state nor type."""

    group: str
    type: str | None
    protocol: str
    state: str | None
    coordinator: BrokerAddress

    @property
    def has_members(self) -> bool:
        """Whether it surely has; a broker that does not tell will refuse by itself."""
        return self.state not in (None, *EMPTY_STATES)


def list_groups(cluster: Cluster) -> list[GroupRow]:
    """All groups, asked of every broker, by name."""
    answers = cluster.ask_brokers(
        ListGroupsRequest(), ListGroupsResponse, lambda answer: (answer.error_code, None)
    )
    rows = [
        GroupRow(
            group=group.group_id,
            type=group.group_type.lower() or None,
            protocol=group.protocol_type,
            state=group.group_state or None,
            coordinator=broker,
        )
        for broker, answer in answers
        for group in answer.groups
    ]
    return sorted(rows, key=lambda row: row.group)


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
