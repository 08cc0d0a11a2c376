"""The source: topics as Spark reads them, in batches or micro-batches, decoded into Arrow.

`options.py` reads a query's options, `batch.py` and `stream.py` plan ranges of offsets with
`positions.py`, `logs.py` and `ranges.py`; each task fetches its range in `reading.py` and decodes
it in `decoder.py`, by a compiled loop (`compiled.py`, `kernel.py`) or a plain one (`plain.py`).
"""
