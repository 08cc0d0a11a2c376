"""Lets Spark discover `format("headrace")`: it imports modules named `pyspark_...` by itself."""

from __future__ import annotations

__all__ = ["DefaultSource"]

try:
    from headrace.spark.data_source import HeadraceSource as DefaultSource
except ImportError:
    # Spark also imports this where Headrace is installed without its Spark extra. Without a
    # DefaultSource there is no such format, and Spark still finds all others.
    __all__ = []
