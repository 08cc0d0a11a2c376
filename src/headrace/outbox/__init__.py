"""The outbox: messages that are sent because, and only if, a database transaction committed.

`sending.py` puts a message into the outbox over the connection of any transaction (`store` keeps
the table). `relay.py` sends these messages to Kafka, and again those not confirmed in time;
`client/held_topics.py` pauses topics that refuse them. A consumer confirms through a topic
(`confirmations.py`) or over HTTP (`confirm_http.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.outbox.sending import ANY as ANY
    from headrace.outbox.sending import send as send
    from headrace.outbox.sending import send_all as send_all
else:
    __getattr__, __dir__ = lazy_names(__name__, sending="ANY send send_all")
