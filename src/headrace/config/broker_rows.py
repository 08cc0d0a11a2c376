"""Broker settings: every one that this broker honours, with Kafka's names and defaults."""

from __future__ import annotations

from headrace.config.group_rows import GROUP_ROWS, check_session_timeouts
from headrace.config.listeners import check_listeners
from headrace.config.log_rows import LOG_ROWS
from headrace.config.network_rows import NETWORK_ROWS, check_queued_bytes
from headrace.config.node_rows import NODE_ROWS, check_node_id
from headrace.config.settings import Rows
from headrace.config.transaction_rows import TRANSACTION_ROWS

_ROWS = NODE_ROWS + NETWORK_ROWS + LOG_ROWS + GROUP_ROWS + TRANSACTION_ROWS

BROKER_ROWS = Rows(
    noun="broker setting",
    rows=tuple(sorted(_ROWS, key=lambda row: row.name)),
    rules=(check_node_id, check_listeners, check_queued_bytes, check_session_timeouts),
)
