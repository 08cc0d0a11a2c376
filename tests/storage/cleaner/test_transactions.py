"""What the cleaner may drop of transactions."""

from __future__ import annotations

from headrace.storage.cleaner.transactions import CleanedTransactions
from headrace.storage.log.txn_index import AbortedTxn


def test_data_of_an_aborted_transaction_goes_and_its_marker_stays_for_now() -> None:
    row = AbortedTxn(7, first_offset=10, last_offset=12, last_stable_offset=13)
    transactions = CleanedTransactions([row], start_offset=0)
    assert transactions.on_data(7, 10)
    assert transactions.on_data(7, 11)
    assert transactions.on_abort(7, 12) == (False, row)


def test_a_marker_is_spent_when_no_batch_of_its_transaction_is_left() -> None:
    row = AbortedTxn(7, first_offset=10, last_offset=12, last_stable_offset=13)
    transactions = CleanedTransactions([row], start_offset=0)
    assert transactions.on_abort(7, 12) == (True, None)
    assert transactions.on_commit(8, 13)


def test_committed_data_keeps_its_marker() -> None:
    transactions = CleanedTransactions([], start_offset=0)
    assert not transactions.on_data(7, 3)
    assert not transactions.on_commit(7, 4)
    assert transactions.on_commit(7, 5)


def test_a_committed_transaction_after_an_aborted_one_of_the_same_producer_stays() -> None:
    row = AbortedTxn(7, first_offset=0, last_offset=2, last_stable_offset=3)
    transactions = CleanedTransactions([row], start_offset=0)
    assert transactions.on_data(7, 1)
    assert transactions.on_abort(7, 2) == (False, row)
    assert not transactions.on_data(7, 4)
    assert not transactions.on_commit(7, 5)


def test_an_abort_that_ended_before_the_start_does_not_swallow_what_follows() -> None:
    row = AbortedTxn(7, first_offset=0, last_offset=2, last_stable_offset=3)
    transactions = CleanedTransactions([row], start_offset=3)
    assert not transactions.on_data(7, 4)


def test_an_abort_that_reaches_over_the_start_still_counts() -> None:
    row = AbortedTxn(7, first_offset=0, last_offset=9, last_stable_offset=10)
    transactions = CleanedTransactions([row], start_offset=5)
    assert transactions.on_data(7, 6)
    assert transactions.on_abort(7, 9) == (False, row)


def test_interleaved_producers_do_not_mix() -> None:
    seven = AbortedTxn(7, first_offset=0, last_offset=5, last_stable_offset=6)
    eight = AbortedTxn(8, first_offset=3, last_offset=7, last_stable_offset=8)
    transactions = CleanedTransactions([eight, seven], start_offset=0)
    assert transactions.on_data(7, 0)
    assert not transactions.on_data(9, 1)
    assert transactions.on_data(8, 3)
    assert not transactions.on_commit(9, 4)
    assert transactions.on_abort(7, 5) == (False, seven)
    assert transactions.on_abort(8, 7) == (False, eight)


def test_aborted_data_without_an_index_row_keeps_its_marker() -> None:
    transactions = CleanedTransactions([], start_offset=0)
    assert not transactions.on_data(7, 0)
    assert transactions.on_abort(7, 1) == (False, None)
