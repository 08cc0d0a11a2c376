"""What must hold in every run: one function each, a history in, violations in words out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.simulation.history import (
    NEVER_US,
    Begun,
    Commit,
    History,
    Look,
    Outcome,
    Place,
    Share,
    Transaction,
)

Invariant = Callable[[History], Iterator[str]]

# Groups of this name belong to programs that consume, process and produce.
PROCESSOR_GROUPS = "processor-"


def one_owner_per_partition_and_generation(history: History) -> Iterator[str]:
    """No two members are told that a partition is theirs in the same generation of a group."""
    owners: dict[tuple[str, int, int], Share] = {}
    for share in history.shares:
        for partition in share.partitions:
            first = owners.setdefault((share.group, share.generation, partition), share)
            if first.owner != share.owner and not _reborn(
                history, share.group, first.asked_us, share.told_us
            ):
                yield (
                    f"partition {partition} of group {share.group} belongs to {first.owner} and "
                    f"to {share.owner} in generation {share.generation}"
                )


def no_commit_of_an_old_generation(history: History) -> Iterator[str]:
    """Once a generation has its assignments, no commit of an older one is accepted."""
    told: dict[str, list[Share]] = defaultdict(list)
    for share in history.shares:
        told[share.group].append(share)
    for commit in history.commits:
        group = commit.place[0]
        if commit.generation < 0 or commit.outcome is not Outcome.DONE:
            continue
        for share in told[group]:
            if (
                share.told_us < commit.sent_us
                and share.generation > commit.generation
                and not _reborn(history, group, share.asked_us, commit.answered_us or 0)
            ):
                yield (
                    f"{commit.who} committed {commit.offset} at {commit.place} in generation "
                    f"{commit.generation}, when generation {share.generation} had begun"
                )
                break


def _reborn(history: History, group: str, from_us: int, to_us: int) -> bool:
    """Whether a group may have been deleted in between, and then counts from 1 again."""
    return any(
        commit.offset is None
        and commit.place[0] == group
        and commit.outcome is not Outcome.REFUSED
        and commit.sent_us <= to_us
        and (commit.outcome is Outcome.UNKNOWN or from_us <= (commit.answered_us or 0))
        for commit in history.commits
    )


def no_acknowledged_commit_lost(history: History) -> Iterator[str]:
    """A committed offset is what was committed last, as if each commit happened in one instant.

    A write is over when it is acknowledged, or when somebody has read it. Whoever looks after that
    sees it, or a write that was not over before it began.
    """
    places: dict[Place, tuple[list[Commit], list[Look]]] = defaultdict(lambda: ([], []))
    for commit in history.commits:
        if commit.outcome is not Outcome.REFUSED:
            places[commit.place][0].append(commit)
    for look in history.looks:
        places[look.place][1].append(look)
    for commits, looks in places.values():
        yield from _lost(commits, looks)


def _lost(commits: list[Commit], looks: list[Look]) -> Iterator[str]:
    read_us: dict[str, int] = {}
    for look in looks:
        if look.mark is not None:
            read_us[look.mark] = min(look.heard_us, read_us.get(look.mark, NEVER_US))
    over: list[tuple[Commit, int]] = []
    for commit in commits:
        done = commit.outcome is Outcome.DONE and commit.answered_us is not None
        over_us = commit.answered_us if done and commit.answered_us is not None else NEVER_US
        if commit.mark is not None:
            over_us = min(over_us, read_us.get(commit.mark, NEVER_US))
        over.append((commit, over_us))
    for look in looks:
        # The place was empty before anybody wrote.
        sources = [(-1, -1)] if look.mark is None else []
        sources += [(c.sent_us, ended) for c, ended in over if c.mark == look.mark]
        sources = [(sent_us, ended) for sent_us, ended in sources if sent_us < look.heard_us]
        if not sources:
            continue  # another invariant's concern
        for commit, over_us in over:
            if over_us < look.sent_us and all(ended < commit.sent_us for _, ended in sources):
                yield (
                    f"{look.who} read {look.mark} at {look.place} after {commit.mark} of "
                    f"{commit.who} was committed"
                )
                break


def no_commit_out_of_nothing(history: History) -> Iterator[str]:
    """A committed offset that is read was written there with its metadata, and not refused."""
    written = {(c.place, c.mark): c for c in history.commits}
    for look in history.looks:
        if look.offset is None:
            continue
        commit = written.get((look.place, look.mark))
        found = f"{look.who} read {look.offset} ({look.mark!r}) at {look.place}"
        if commit is None or commit.sent_us > look.heard_us or commit.offset != look.offset:
            yield f"{found}, where nobody had written it"
        elif commit.outcome is Outcome.REFUSED:
            yield f"{found}, which had been refused"
        elif commit.transaction is not None and _too_early(commit.transaction, look.heard_us):
            yield f"{found} before transaction {commit.transaction.name} was committed"


def everything_settles(history: History) -> Iterator[str]:
    """When the faults are over, what has to happen happens."""
    yield from history.stuck


# Transactions.


def no_committed_record_hidden(history: History) -> Iterator[str]:
    """What was committed or acknowledged is there in the end, where its producer was told it is.

    A reader that passed an offset saw what every later reader sees there.
    """
    places = {s.value: (p, s.offset) for p, last in history.last.items() for s in last.shown}
    for sent in history.sent:
        transaction = sent.transaction
        if transaction is None:
            if sent.offset is None:
                continue
        elif not transaction.committed or transaction.outcome is not Outcome.DONE:
            continue
        place = places.get(sent.value)
        if place is None:
            yield f"{sent.value} in partition {sent.partition} was committed and is not shown"
        elif place != (sent.partition, sent.offset):
            yield f"{sent.value} was acknowledged at {sent.offset} and is shown at {place}"
    for reading in history.readings:
        last = history.last.get(reading.partition)
        if last is not None:
            end = min(reading.position, last.position)
            seen = [s.value for s in reading.shown if s.offset < end]
            expected = [s.value for s in last.shown if s.offset < end]
            if seen != expected:
                yield (
                    f"{reading.who} read partition {reading.partition} up to {end} and saw "
                    f"{seen} instead of {expected}"
                )


def no_aborted_record_shown(history: History) -> Iterator[str]:
    """No reader of committed records sees one that was aborted, or not yet committed, or never."""
    sent = {each.value: each for each in history.sent}
    for reading in (*history.readings, *history.last.values()):
        seen = set()
        for shown in reading.shown:
            if shown.value in seen:
                yield f"{shown.value} was shown twice to {reading.who}"
            seen.add(shown.value)
            known = sent.get(shown.value)
            if known is None:
                yield f"{shown.value} was shown to {reading.who} and never sent"
            elif known.transaction is not None and _too_early(known.transaction, shown.heard_us):
                yield (
                    f"{shown.value} of transaction {known.transaction.name} was shown to "
                    f"{reading.who}, though it was aborted or not yet committed"
                )


def no_transaction_torn(history: History) -> Iterator[str]:
    """Of a transaction's acknowledged records and offsets all are there in the end, or none."""
    shown = {each.value for last in history.last.values() for each in last.shown}
    for transaction in history.transactions:
        there = [each.value in shown for each in transaction.records if each.offset is not None]
        if any(there) and not all(there):
            yield f"of transaction {transaction.name} only a part is shown"


def no_producer_accepted_after_its_fence(history: History) -> Iterator[str]:
    """Once a producer was told its epoch, nothing sent later under an older one is accepted."""
    by_id: dict[str, list[Begun]] = defaultdict(list)
    for begun in history.begun:
        by_id[begun.transactional_id].append(begun)
    for accepted in history.accepted:
        for begun in by_id[accepted.transactional_id]:
            newer = (
                begun.epoch > accepted.epoch
                if begun.producer_id == accepted.producer_id
                else begun.asked_us > accepted.begun.told_us
            )
            if newer and begun.told_us < accepted.sent_us:
                yield (
                    f"{accepted.what} of {accepted.who} under epoch {accepted.epoch} was accepted "
                    f"after {begun.who} had begun epoch {begun.epoch}"
                )
                break


def every_input_is_processed_once(history: History) -> Iterator[str]:
    """What consume-process-produce put out is its input up to the committed offset, each once."""
    outputs: dict[str, list[int]] = defaultdict(list)
    for last in history.last.values():
        for shown in last.shown:
            source, _, rest = shown.value.partition("@")
            if rest:
                outputs[source].append(int(rest.partition("#")[0]))
    ends: dict[str, int] = {}
    for look in history.looks:
        group, partition = look.place
        if group.startswith(PROCESSOR_GROUPS):
            ends[f"{group}/{partition}"] = look.offset or 0
    for source, numbers in outputs.items():
        if sorted(numbers) != list(range(ends.get(source, 0))):
            yield f"the outputs of {source} up to {ends.get(source, 0)} are {sorted(numbers)}"
    for source, end in ends.items():
        if end and source not in outputs:
            yield f"{source} has come to {end} without any output"


def _too_early(transaction: Transaction, at_us: int) -> bool:
    """Whether something of a transaction must not be seen at that time."""
    decided_us = transaction.decided_us
    return not transaction.may_be_shown or decided_us is None or at_us < decided_us


OF_GROUPS: tuple[Invariant, ...] = (
    one_owner_per_partition_and_generation,
    no_commit_of_an_old_generation,
    no_acknowledged_commit_lost,
    no_commit_out_of_nothing,
    everything_settles,
)
OF_TRANSACTIONS: tuple[Invariant, ...] = (
    no_committed_record_hidden,
    no_aborted_record_shown,
    no_transaction_torn,
    no_producer_accepted_after_its_fence,
    every_input_is_processed_once,
    no_acknowledged_commit_lost,
    no_commit_out_of_nothing,
    everything_settles,
)


def violations(history: History, invariants: tuple[Invariant, ...]) -> list[str]:
    """All that is wrong with a history, each with the name of its invariant."""
    return [
        f"{invariant.__name__}: {violation}"
        for invariant in invariants
        for violation in invariant(history)
    ]
