"""The sink: rows to topics, each task in one transaction with a marker, so that no batch is twice.

`sink.py` is a task; `record_batches.py` and `record_kernel.py` encode its rows, `transaction.py`
and `sending.py` write them over the wire, and `markers.py` remembers which batch was written
last.
"""
