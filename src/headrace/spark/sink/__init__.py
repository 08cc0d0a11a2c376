"""The sink writes rows to topics, each task in one transaction with a marker, so no batch twice.

`options.py` reads a query's options. In a worker `writers.py` takes a task's rows and
`transaction.py` writes them: `record_batches.py` encodes them, with the compiled loops of
`encode_kernel.py`, `batch_sender.py` sends them to the leaders, and `markers.py` has the marker,
which says which batch the task has written last.
"""
