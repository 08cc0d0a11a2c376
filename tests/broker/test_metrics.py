"""Counters and histograms tell what happened."""

from __future__ import annotations

from headrace.broker.metrics import Histogram, Metrics
from headrace.testing import BrokerThread

from .wire import Wire, batch_of


def test_a_quantile_is_bounded_by_its_bucket() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.record(value)
    assert histogram.count == 1000
    assert histogram.total == 500_500
    assert 500 <= histogram.quantile(0.5) < 1024
    assert 990 <= histogram.quantile(0.99) < 1024
    assert Histogram().quantile(0.5) == 0


def test_huge_values_land_in_the_last_bucket() -> None:
    histogram = Histogram()
    histogram.record(1 << 60)
    assert histogram.count == 1


def test_a_node_counts_what_it_serves(broker: BrokerThread) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("t")
        wire.produce("t", batch_of(b"a", b"b", b"c"))
        metrics: Metrics = broker.broker.node.metrics
        samples = {(s.name, s.labels.get("api_key")): s.value for s in metrics.samples()}
        assert samples["records_in", None] == 3
        assert samples["connections", None] == 1
        produce, syncs = samples["request_ns", "0"], samples["sync_ns", None]
        assert isinstance(produce, Histogram)
        assert produce.count == 1
        assert isinstance(syncs, Histogram)
        assert syncs.count >= 1
