"""Brokers and databases in pairs: everything on two of them, a smoke on the other two."""

from __future__ import annotations

from tests.stores import (
    any_pair,
    apache_kafka,
    new_database,
    pair,
    postgres,
    redis_server,
    store_url,
)

__all__ = [
    "any_pair",
    "apache_kafka",
    "new_database",
    "pair",
    "postgres",
    "redis_server",
    "store_url",
]
