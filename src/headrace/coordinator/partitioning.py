"""The partition of `__consumer_offsets` that stores a group, by Kafka's rule."""

from __future__ import annotations

from array import array

INT32_MIN = -(2**31)


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: a polynomial over UTF-16 code units, in 32 bits with a sign."""
    units = array("H")
    units.frombytes(text.encode("utf-16-le", "surrogatepass"))
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition that stores a group."""
    value = java_string_hash(group_id)
    # Java cannot negate its smallest integer; Kafka uses 0 for it.
    return (0 if value == INT32_MIN else abs(value)) % partition_count
