"""The cluster of a single node: this broker leads everything and nobody contests it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.ports import BrokerAddress


class Alone:
    """A cluster whose only member is this broker."""

    def __init__(self, cluster_id: str, address: BrokerAddress) -> None:
        self.cluster_id = cluster_id
        self.address = address

    @property
    def node_id(self) -> int:
        return self.address.node_id

    @property
    def controller_id(self) -> int:
        return self.address.node_id

    def brokers(self) -> Sequence[BrokerAddress]:
        return (self.address,)

    def leader_epoch(self, topic: str, partition: int) -> int:
        """Always 0: leadership never moves, so the epoch never has to rise."""
        return 0
