"""Large messages: whole through any Kafka, in chunks or by a claim check, never whole in memory.

`large.py` is what an application configures. `sending.py` cuts a value into chunks, or stores it
and sends a claim check; `receiving.py` puts chunks together (`reassembly.py`, pure) and opens
claim checks. `headers.py` is the form on the wire. `claims*.py` are the places for bodies, and
`garbage.py` removes those that no record needs any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lazy import lazy_names

if TYPE_CHECKING:
    from headrace.large.large import Large as Large
else:
    __getattr__, __dir__ = lazy_names(__name__, large="Large")
