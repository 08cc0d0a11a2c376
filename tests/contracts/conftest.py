"""The databases that a store is tried on."""

from __future__ import annotations

from tests.stores import new_database, postgres, redis_server, store_url

__all__ = ["new_database", "postgres", "redis_server", "store_url"]
