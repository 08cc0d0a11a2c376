"""What an operator does to a cluster, for the command line, the console and other callers.

`topics.py` creates topics; `groups.py` lists, commits and deletes groups; `seek.py` moves a group
to a position (`seek_target.py`, `offset_files.py`, `offsets.py`); `rebalance.py` makes it assign
its partitions again; `transactions.py` reads transactions and `aborts.py` ends them. A refusal is
an AdminError with a hint.
"""
