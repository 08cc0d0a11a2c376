"""The log of one partition: segments in offset order, with their indexes and producers.

`log.py` appends, syncs and rolls; `segment.py` is one `.log` file with its three indexes.
`appending.py` refuses batches that must not be appended, `flush.py` and `sync.py` make appends
durable, `lookup.py` and `reading.py` answer readers. `retention.py` and `trimming.py` delete data,
`swap.py` replaces segments by compacted ones, `deleted.py` removes files later. `sparse_index.py`
and `txn_index.py` are the indexes, `scan.py` walks batches. `producers.py`, `epochs.py` and
`snapshots.py` are the state beside the log.
"""
