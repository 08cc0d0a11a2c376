"""Metrics in Prometheus's text format."""

from __future__ import annotations

from headrace.dispatch.metrics import COUNTERS, GAUGES, text


def test_metrics_are_what_prometheus_reads() -> None:
    shown = text({"done": 3, "waiting": 1, "owner_refused": 2}, 'a"b')
    assert 'headrace_dispatch_done_total{topic="a\\"b"} 3' in shown.splitlines()
    assert "# TYPE headrace_dispatch_waiting gauge" in shown.splitlines()
    assert "# HELP headrace_dispatch_owner_refused_total Times: owner refused." in shown
    assert not GAUGES.keys() & COUNTERS.keys()
