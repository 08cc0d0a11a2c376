"""Settings: rows with a name, kind, default and meaning, and the values given for them.

`kinds` parses text, `validators` checks a value, `settings` holds rows and layers of values.
`topic_rows` and `broker_rows` (made of `node_rows`, `network_rows`, `log_rows`, `group_rows` and
`transaction_rows`) are the tables; `listeners` and `topic_overrides` interpret them. `changes`
applies an admin request, `environment` reads environment variables, and `reference` writes
docs/settings.md.
"""

from headrace.config.broker_rows import BROKER_ROWS
from headrace.config.kinds import Kind, Value
from headrace.config.listeners import Endpoint, advertised_listeners, listeners
from headrace.config.node_rows import log_dirs, metadata_dir, node_id
from headrace.config.settings import ConfigError, Rows, Scope, Setting, Settings, Source
from headrace.config.topic_overrides import Synonym, topic_settings, topic_synonyms
from headrace.config.topic_rows import TOPIC_ROWS

__all__ = [
    "BROKER_ROWS",
    "TOPIC_ROWS",
    "ConfigError",
    "Endpoint",
    "Kind",
    "Rows",
    "Scope",
    "Setting",
    "Settings",
    "Source",
    "Synonym",
    "Value",
    "advertised_listeners",
    "listeners",
    "log_dirs",
    "metadata_dir",
    "node_id",
    "topic_settings",
    "topic_synonyms",
]
