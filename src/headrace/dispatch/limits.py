"""The dispatcher's times and sizes, and the bound that follows from them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Shared by all nodes of a topic."""

    # A token that was taken, and an item that runs, is not taken for lost so long; renewed by
    # whoever runs the item every third of it.
    lease_ms: int = 10_000
    # A token that was offered to a waiting node goes to another one when it is not collected.
    offer_ms: int = 1_000
    # An owner looks for its tokens so often, and acts after so many misses in a row.
    heal_interval_ms: int = 1_000
    heal_misses: int = 3
    # A node with waiting items says so again, since a store that lost its state forgets it.
    ask_interval_ms: int = 1_000
    # The owner's machine is told the time so often.
    tick_ms: int = 250
    # So many items of an earlier owner are run by the new one; more are sent back.
    inherited_max: int = 64

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.tick_ms * 3 > self.lease_ms:
            raise ValueError("lease_ms must be at least three times tick_ms to be renewed in time")

    @property
    def renew_ms(self) -> int:
        """How often a running item's lease is renewed."""
        return self.lease_ms // 3

    @property
    def healing_ms_max(self) -> int:
        """After the last fault, every assigned partition without an item has its token by then.

        One lease for what another node may still run, one for a token whose holder died, the
        misses, and two rounds for noticing; the trip of one record comes on top.
        """
        return 2 * self.lease_ms + (self.heal_misses + 2) * self.heal_interval_ms
