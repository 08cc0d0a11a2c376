"""Found by Spark itself, which takes the DefaultSource of every module named `pyspark_...`."""

from __future__ import annotations

__all__ = ["DefaultSource"]

try:
    from headrace.spark.data_source import HeadraceSource as DefaultSource
except ImportError:
    # Spark imports this wherever Headrace is installed, also where its extra is not: without a
    # DefaultSource there is no such format, and other formats are found all the same.
    __all__ = []
