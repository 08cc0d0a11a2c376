"""The checker can fail: for each invariant, a broker that is broken on purpose is caught."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation import invariants
from tests.simulation.groups import Groups
from tests.simulation.invariants import Invariant
from tests.simulation.running import Kind, first_bad
from tests.simulation.transactions import Transactions
from tests.storage.faulty_files import _PowerLossFile as PowerLossFile

from headrace.broker.transactions_markers import Markers
from headrace.coordinator import commits, txn_commits
from headrace.coordinator.group import Group
from headrace.coordinator.offsets import Offsets
from headrace.coordinator.rebalances import Rebalances
from headrace.coordinator.transactions import coordinator as transactions
from headrace.coordinator.transactions.effects import Result
from headrace.protocol.errors import ErrorCode
from headrace.storage import Log
from headrace.storage.log.producers import Producers

SEEDS = range(200)

Patch = Callable[[pytest.MonkeyPatch], None]


def generations_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    begin = Group.begin_generation

    def begin_again(group: Group) -> None:
        begin(group)
        group.generation = max(group.generation - 1, 1)

    patch.setattr(Group, "begin_generation", begin_again)


def logs_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    sync = PowerLossFile.sync

    def lie(file: PowerLossFile) -> None:
        if not file.path.endswith(".log"):
            sync(file)

    patch.setattr(PowerLossFile, "sync", lie)


def any_generation_may_commit(patch: pytest.MonkeyPatch) -> None:
    check_commit = commits.check_commit

    def lenient(*args: Any) -> ErrorCode:
        error = check_commit(*args)
        return ErrorCode.NONE if error is ErrorCode.ILLEGAL_GENERATION else error

    patch.setattr(commits, "check_commit", lenient)


def metadata_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    fetch_one = commits.Commits._fetch_one

    def fetch(*args: Any) -> Any:
        found = fetch_one(*args)
        found.metadata = ""
        return found

    patch.setattr(commits.Commits, "_fetch_one", fetch)


def sessions_never_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rebalances, "on_session_timer", lambda *args: None)


def every_marker_aborts(patch: pytest.MonkeyPatch) -> None:
    append = Markers.append

    def aborting(markers: Markers, partition: Any, producer: Any, _: bool, epoch: int) -> int:
        return append(markers, partition, producer, False, epoch)

    patch.setattr(Markers, "append", aborting)


def the_first_partition_alone_commits(patch: pytest.MonkeyPatch) -> None:
    append = Markers.append

    def torn(markers: Markers, partition: Any, producer: Any, committed: bool, epoch: int) -> int:
        return append(markers, partition, producer, committed and partition.index == 0, epoch)

    patch.setattr(Markers, "append", torn)


def aborts_are_not_indexed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "aborted_transactions", lambda *args: [])


def readers_see_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda log: log.high_watermark))


def any_epoch_may_write(patch: pytest.MonkeyPatch) -> None:
    check = transactions._check_producer

    def lenient(*args: Any) -> ErrorCode:
        error = check(*args)
        return ErrorCode.NONE if error is ErrorCode.PRODUCER_FENCED else error

    patch.setattr(transactions, "_check_producer", lenient)
    patch.setattr(Producers, "check", lambda *args, **options: None)


def offsets_do_not_wait_for_their_transaction(patch: pytest.MonkeyPatch) -> None:
    replay = Offsets.replay
    patch.setattr(Offsets, "replay", lambda offsets, change, _=-1: replay(offsets, change))


def any_generation_may_commit_in_a_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(txn_commits, "check_txn_commit", lambda group, request: ErrorCode.NONE)


def transactions_never_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions.TransactionCoordinator, "on_timer", lambda *args: Result())


@pytest.mark.parametrize(
    ("kind", "mutate", "invariant"),
    [
        (
            Groups,
            generations_are_not_counted,
            invariants.one_owner_per_partition_and_generation,
        ),
        (Groups, logs_are_not_synced, invariants.no_acknowledged_commit_lost),
        (Groups, any_generation_may_commit, invariants.no_commit_of_an_old_generation),
        (Groups, metadata_is_forgotten, invariants.no_commit_out_of_nothing),
        (Groups, sessions_never_end, invariants.everything_settles),
        (Transactions, logs_are_not_synced, invariants.no_acknowledged_commit_lost),
        (Transactions, every_marker_aborts, invariants.no_committed_record_hidden),
        (Transactions, logs_are_not_synced, invariants.no_committed_record_hidden),
        (Transactions, aborts_are_not_indexed, invariants.no_aborted_record_shown),
        (Transactions, readers_see_open_transactions, invariants.no_aborted_record_shown),
        (Transactions, the_first_partition_alone_commits, invariants.no_transaction_torn),
        (Transactions, any_epoch_may_write, invariants.no_producer_accepted_after_its_fence),
        (
            Transactions,
            offsets_do_not_wait_for_their_transaction,
            invariants.every_input_is_processed_once,
        ),
        (
            Transactions,
            offsets_do_not_wait_for_their_transaction,
            invariants.no_commit_out_of_nothing,
        ),
        (
            Transactions,
            any_generation_may_commit_in_a_transaction,
            invariants.every_input_is_processed_once,
        ),
        (Transactions, transactions_never_time_out, invariants.everything_settles),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_broken_broker_is_caught(
    kind: Kind, mutate: Patch, invariant: Invariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    assert first_bad(kind, SEEDS, invariant) is not None
