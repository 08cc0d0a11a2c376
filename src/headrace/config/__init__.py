"""Settings as rows: name, kind, default, unit, meaning; and the only reader of the environment."""

from headrace.config.broker_rows import BROKER_ROWS
from headrace.config.kinds import Kind, Value
from headrace.config.listeners import Endpoint, advertised_listeners, listeners
from headrace.config.node_rows import log_dirs, metadata_dir, node_id
from headrace.config.settings import ConfigError, Rows, Scope, Setting, Settings, Source
from headrace.config.topic_rows import TOPIC_ROWS
from headrace.config.topics import Synonym, topic_settings, topic_synonyms

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
