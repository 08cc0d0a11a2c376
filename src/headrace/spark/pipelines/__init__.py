"""Pipelines: a function from events to rows that runs for months, exactly once, with replay.

`definitions.py` is what users write; `runner.py` starts and watches its queries through
`writing.py` and `frames.py`. `sql_batches.py`, `parquet_batches.py` and the sink make each output
exactly once, `pins.py` and `kept_rows.py` make a repeated batch the same. `homes.py` keeps a
version's state; `comparing.py`, `aliases.py` and `outputs.py` compare, switch and drop versions.
"""
