"""Groups as administrators see them: DescribeGroups and ListGroups."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.coordinator.group import Group
from headrace.coordinator.states import State
from headrace.protocol.api.describe_groups import DescribedGroup, DescribedGroupMember
from headrace.protocol.api.list_groups import ListedGroup
from headrace.protocol.errors import ErrorCode

CLASSIC_TYPE = "classic"
# From this version an unknown group is an error; before, it is a dead group.
GROUP_NOT_FOUND_VERSION = 6


def described(group: Group) -> DescribedGroup:
    """A group with its members; their metadata only while a protocol is agreed on."""
    stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription(group.protocol) if stable else b"",
                member_assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ],
    )


def not_described(group_id: str, api_version: int) -> DescribedGroup:
    """The description of an unknown group."""
    group = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if api_version >= GROUP_NOT_FOUND_VERSION:
        group.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        group.error_message = f"Group {group_id} not found."
    return group


def listed(
    groups: Iterable[Group], states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[ListedGroup]:
    """The groups in any of these states and of any of these types; no filter means all."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    if wanted_types and CLASSIC_TYPE not in wanted_types:
        return []
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC_TYPE,
        )
        for group in groups
        if not wanted_states or group.state.value.lower() in wanted_states
    ]
