"""What a node is configured with: its limits, its place in the cluster, and its client settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.dispatch.errors import DispatchError
from headrace.dispatch.spool.frames import BODY_BYTES_MAX, ID_BYTES_MAX

# The client library's default for the largest request.
REQUEST_BYTES_MAX = 1_000_000
# A record's id, its other headers, and their framing.
HEADERS_BYTES = ID_BYTES_MAX + 769


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """The dispatcher's times and sizes; the same on all nodes of a topic."""

    # How long a taken token and a running job are not considered lost; the node that runs the job
    # renews its lease every third of this time.
    lease_ms: int = 10_000
    # A token that was offered to a waiting node goes to another one if it is not collected.
    offer_ms: int = 1_000
    # How often an owner checks its tokens, and after how many misses in a row it acts.
    heal_interval_ms: int = 1_000
    heal_misses: int = 3
    # A node with waiting jobs asks again, since a store that lost its state forgets the ask.
    ask_interval_ms: int = 1_000
    # How often the owner machine gets the time.
    tick_ms: int = 250
    # How many jobs of an earlier owner the new owner runs; more are sent back.
    inherited_max: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.tick_ms * 3 > self.lease_ms:
            raise ValueError(
                f"lease_ms={self.lease_ms} is too short to be renewed in time; it must be at least "
                f"three times tick_ms={self.tick_ms}"
            )

    @property
    def renew_ms(self) -> int:
        """How often a running job's lease is renewed."""
        return self.lease_ms // 3

    @property
    def healing_ms_max(self) -> int:
        """How soon after the last fault every assigned partition without a job has its token.

        One lease for what another node may still run, one for a token whose holder died, the
        misses, and two rounds for noticing; the trip of one record comes on top.
        """
        return 2 * self.lease_ms + (self.heal_misses + 2) * self.heal_interval_ms


# The public name.
Limits = DispatchLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """What a node needs to know to join its dispatcher."""

    bootstrap: str
    topic: str
    done_topic: str
    group: str
    settings: Mapping[str, Any]
    limits: DispatchLimits
    weight: int
    partitions: int
    tokens: str = ""


def check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client settings; DispatchError if a node cannot work with them."""
    if settings.get("group.instance.id"):
        raise DispatchError(
            "group.instance.id does not work with a dispatcher: a restarted static member comes "
            "back in the same generation, and fences would repeat",
            "leave it out; a node that stops gives its partitions back at once anyway",
        )
    return dict(settings)


def job_bytes_max(settings: Mapping[str, Any]) -> int:
    """The size of the largest job that can be stored and sent."""
    request_bytes = settings.get("max.request.size", settings.get("message.max.bytes"))
    return min(int(request_bytes or REQUEST_BYTES_MAX), BODY_BYTES_MAX) - HEADERS_BYTES
