"""Metadata: the store port, its SQLite form for one machine, and the catalog kept in it."""

from headrace.metadata.catalog import ALL_BROKERS, Catalog, CatalogError, DeletedTopic, Topic
from headrace.metadata.sqlite import FILE_NAME, SqliteStore
from headrace.metadata.store import MetadataStore, StoreError, StoreUnavailableError

__all__ = [
    "ALL_BROKERS",
    "FILE_NAME",
    "Catalog",
    "CatalogError",
    "DeletedTopic",
    "MetadataStore",
    "SqliteStore",
    "StoreError",
    "StoreUnavailableError",
    "Topic",
]
