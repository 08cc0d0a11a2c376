"""The job of an app that removes the bodies which no record and no row needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.large.garbage import find_garbage, find_unneeded, needed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.handlers.context import AppContext
    from headrace.large.claims import Claims, Stored
    from headrace.large.large import Large

_log = logging.getLogger("headrace.large")


class Collecting:
    """Looks at the app's claim checks, if it has any, and at what its store keeps."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        # Topics that were not there at the last look.
        self._unknown: frozenset[str] = frozenset()

    def collect(self) -> None:
        """Look once.

        Bodies of topics whose records do not go by age are left to `headrace large gc --scan`.
        """
        from headrace.large.keeping import kept_in

        large, store = self._context.large, self._context.store
        assert large is not None
        if large.has_claims:
            self._collect_claims(large)
        if store is not None:
            kept = kept_in(store)
            now_ms = self._context.clock.now_ms()
            found = find_unneeded(kept, now_ms, large.grace_ms, needed_by(store))
            _remove(kept, found.garbage)

    def _collect_claims(self, large: Large) -> None:
        from headrace.client.settings import translate

        facts_of = large.facts(translate(self._context.client_settings("producer"), "producer"))
        now_ms = self._context.clock.now_ms()
        found = find_garbage(large.claims, facts_of.cluster, facts_of, now_ms, large.grace_ms)
        # A broker that has just started may not know a topic yet: what is missing twice is gone.
        doubtful = found.unknown - self._unknown
        self._unknown = found.unknown
        _remove(large.claims, [it for it in found.garbage if it.topic not in doubtful])


def _remove(claims: Claims, garbage: Sequence[Stored]) -> None:
    claims.delete(stored.name for stored in garbage)
    if garbage:
        total = sum(stored.body_bytes for stored in garbage)
        _log.info("removed %d bodies, %d bytes", len(garbage), total)
