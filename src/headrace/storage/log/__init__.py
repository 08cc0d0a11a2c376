"""The log of one partition: segments in offset order, with their indexes and producers.

`log.py` appends, syncs and rolls; `segment.py` is one `.log` file with its three indexes.
`appending.py` refuses what must not be appended, `flush.py` and `sync.py` make appends durable,
`lookup.py` and `reading.py` answer readers, `trimming.py` and `retention.py` take data away.
`producers.py`, `epochs.py` and `snapshots.py` are the state beside the log.
"""
