"""The source reads topics into Spark, in batches or micro-batches, decoded straight into Arrow.

`options.py` reads a query's options (`positions.py`: where it begins and ends, `columns.py`: what
it builds). In the driver `batch_reader.py` and `stream_reader.py` look up offsets through
`logs.py` and cut them into tasks with `offset_ranges.py`; `lags.py` measures how far a stream is
behind. In a worker `task.py` fetches and unpacks a range, and `decoder.py` makes Arrow batches of
it, with the compiled loop of `decode_kernel.py` or a plain one.
"""
