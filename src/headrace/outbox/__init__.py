"""The outbox: messages that are sent because, and only if, a database transaction committed.

`sending.py` puts a message into the outbox over the connection of any transaction (`store` keeps
the table). `relay.py` takes messages from it to Kafka, and sends again what nobody confirmed;
`relay_rules.py` says what a failed send means. `confirmations.py` and `confirm_http.py` are the
two ways in which a consumer confirms.
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
