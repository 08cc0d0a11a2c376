"""Large messages: through any Kafka in chunks or as a claim check, never whole in memory.

`large.py` is what an application configures. `sender.py` compresses a value (`pieces.py`) and sends
it in chunks, or stores its body and sends a claim check; `headers.py` is the form on the wire.
`receiver.py` puts chunks together (`reassembly_machine.py` decides, `spool.py` holds the bytes,
`topic_reader.py` reads earlier chunks again) and opens claim checks; `records.py` is what consumers
and handlers get, with a body of `bodies.py`. Bodies of claim checks are in a `body_store.py`, as
files or in a table; `garbage.py` finds those that no record needs, by `topic_settings.py`.
`rows.py` keeps large messages in the app's store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.large.large import Large as Large
else:
    __getattr__, __dir__ = lazy_names(__name__, large="Large")
