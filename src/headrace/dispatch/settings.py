"""What a dispatcher's client settings may say, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.dispatch.errors import DispatchError
from headrace.dispatch.spool.frames import BODY_BYTES_MAX, ID_BYTES_MAX

# What the client library sends at most by default.
REQUEST_BYTES_MAX = 1_000_000
# A record's id, its other headers, and what is between them.
HEADERS_BYTES = ID_BYTES_MAX + 769


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, if a node can live with them."""
    if settings.get("group.instance.id"):
        raise DispatchError(
            "group.instance.id does not work with a dispatcher: a restarted static member comes "
            "back in the same generation, and fences would repeat",
            "leave it out; a node that stops gives its partitions back at once anyway",
        )
    return dict(settings)


def job_bytes_max(settings: Mapping[str, Any]) -> int:
    """The largest job that can be kept and sent."""
    request_bytes = settings.get("max.request.size", settings.get("message.max.bytes"))
    return min(int(request_bytes or REQUEST_BYTES_MAX), BODY_BYTES_MAX) - HEADERS_BYTES
