"""Metadata: topics, settings and ids of a cluster, in a store that its nodes share.

`store.py` is the port; `sqlite.py` (over `sqlite_tree.py`) serves one machine, `zookeeper.py` (over
`zookeeper_client.py`) several; they share `sessions.py` and `watches.py`. `catalog.py` is what a
node keeps in memory of it, in the formats of `catalog_entries.py`; its changes are finished even
when their caller is cancelled (`shielding.py`). `planning.py` applies Kafka's rules to requests for
new topics before anything changes, with the names of `topic_names.py`.
"""

from headrace.metadata.catalog import Catalog
from headrace.metadata.catalog_entries import ALL_BROKERS, CatalogError, DeletedTopic, Topic
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
