"""Committing and reading offsets, each noted in the history."""

from __future__ import annotations

from tests.simulation.clients import Client, Lost
from tests.simulation.history import Commit, History, Look, Outcome
from tests.simulation.message_text import CODES

from headrace.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from headrace.protocol.errors import ErrorCode

TOPIC = "t"
# Answers to a commit that promise that it has not happened and never will.
REFUSALS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


async def find_group(client: Client, group: str) -> None:
    """Find a group's coordinator, created if needed; raises Lost if there is none now."""
    request = FindCoordinatorRequest(key=group)
    found = await client.ask(request, FindCoordinatorResponse, 2)
    if found.error_code:
        raise Lost("no coordinator")


async def commit_offsets(
    client: Client,
    history: History,
    group: str,
    partitions: list[int],
    version: int,
    *,
    member_id: str = "",
    instance: str | None = None,
    generation: int = -1,
) -> ErrorCode:
    """Commit a new number for each partition; the error of the first."""
    world = client.world
    if not partitions:
        return ErrorCode.NONE
    commits = {}
    for partition in partitions:
        number = history.number()
        commits[partition] = Commit(
            (group, partition), number, f"m{number}", world.now_us, client.name, generation
        )
    history.commits += commits.values()
    answer = await client.ask(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=commit.offset or 0,
                            committed_metadata=commit.mark,
                        )
                        for partition, commit in commits.items()
                    ],
                )
            ],
        ),
        OffsetCommitResponse,
        version,
    )
    first = ErrorCode.NONE
    for result in answer.topics[0].partitions:
        error = CODES[result.error_code]
        first = first or error
        commit = commits[result.partition_index]
        commit.answered_us = world.now_us
        if not error:
            commit.outcome = Outcome.DONE
        elif error in REFUSALS:
            commit.outcome = Outcome.REFUSED
    return first


async def look_up(
    client: Client,
    history: History,
    group: str,
    partitions: tuple[int, ...],
    version: int,
) -> bool:
    """Read committed offsets; False if some could not be told now."""
    sent_us = client.world.now_us
    wanted = list(partitions)
    if version >= 8:
        request = OffsetFetchRequest(
            require_stable=True,
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=wanted)],
                )
            ],
        )
    else:
        request = OffsetFetchRequest(
            group_id=group,
            require_stable=version >= 7,
            topics=[OffsetFetchRequestTopic(name=TOPIC, partition_indexes=wanted)],
        )
    answer = await client.ask(request, OffsetFetchResponse, version)
    if version >= 8:
        if answer.groups[0].error_code:
            return False
        found = [p for topic in answer.groups[0].topics for p in topic.partitions]
    else:
        if answer.error_code:
            return False
        found = [p for topic in answer.topics for p in topic.partitions]  # type: ignore[misc]
    complete = len(found) == len(wanted)
    for result in found:
        if result.error_code:
            complete = False
            continue
        none = result.committed_offset < 0
        history.looks.append(
            Look(
                (group, result.partition_index),
                None if none else result.committed_offset,
                None if none else result.metadata,
                sent_us,
                client.world.now_us,
                client.name,
            )
        )
    return complete
