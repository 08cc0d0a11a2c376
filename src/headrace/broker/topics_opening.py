"""On start, the folders on disk are made to agree with the catalog, which alone decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.storage import LogConfig

if TYPE_CHECKING:
    from headrace.broker.node import Node


async def open_topics(node: Node) -> None:
    """Open every log, finish what a crash interrupted, and begin to serve all partitions."""

    def config_for(name: str) -> LogConfig:
        topic = node.catalog.get(name)
        return node.topics.log_config(topic.config if topic else {})

    await node.run_read(node.logs.load, config_for)
    for topic in node.catalog.topics.values():
        config = node.topics.log_config(topic.config)
        for index in range(topic.partitions):
            if node.logs.get(topic.name, index) is None:
                node.logs.create(topic.name, index, topic.id, config)
            node.open_partition(topic.name, topic.id, index)
