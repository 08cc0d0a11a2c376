"""The job of an app that removes the bodies which no record and no row needs any more."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.reliability.large.garbage import find_garbage, find_unneeded, needed_by

if TYPE_CHECKING:
    from headrace.reliability.large.claims import Claims
    from headrace.reliability.large.garbage import Collected
    from headrace.reliability.parts import Parts

_log = logging.getLogger("headrace.large")


def collect(parts: Parts) -> None:
    """Look once at the app's claim checks, if it has any, and at what its store keeps.

    Bodies of topics whose records do not go by their age are left to `headrace large gc --scan`.
    """
    from headrace.client.settings import translate
    from headrace.reliability.large.keeping import kept_in

    large = parts.large
    assert large is not None
    now_ms = parts.clock.now_ms()
    if large.way == "claim" or large.claims_url is not None:
        facts_of = large.facts(translate(parts.client_settings("producer"), "producer"))
        _remove(large.claims, find_garbage(large.claims, facts_of, now_ms, large.grace_ms))
    if parts.store is not None:
        kept = kept_in(parts.store)
        _remove(kept, find_unneeded(kept, now_ms, large.grace_ms, needed_by(parts.store)))


def _remove(claims: Claims, found: Collected) -> None:
    claims.delete(stored.name for stored in found.garbage)
    if found.garbage:
        _log.info("removed %d bodies, %d bytes", len(found.garbage), found.body_bytes)
