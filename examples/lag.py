"""A group falls behind: measured, explained and told of: python examples/lag.py.

It brings its own broker.
"""

from __future__ import annotations

import logging
import threading

from headrace import Consumer, Producer
from headrace.client.clock import SystemClock
from headrace.client.wire.cluster import ClusterClient, parse_servers
from headrace.client.wire.security import Security
from headrace.lag.causes import explain
from headrace.lag.gather import gather
from headrace.lag.levels import LevelPolicy, Threshold
from headrace.lag.meter import Meter
from headrace.lag.rules import LagConfig, Rule
from headrace.lag.service import LagService
from headrace.telemetry.alarms import Alarm, Alarms
from headrace.testing import BrokerThread

logging.getLogger("headrace").setLevel(logging.CRITICAL)
clock = SystemClock()

with BrokerThread() as broker:
    with Producer(broker.bootstrap) as producer:
        for number in range(10):
            an_hour_ago_ms = clock.now_ms() - 3_600_000
            producer.send("orders", b"order %d" % number, timestamp_ms=an_hour_ago_ms)
    with Consumer(broker.bootstrap, group="billing", start="earliest") as consumer:
        consumer.assign([("orders", 0)])
        consumer.commit_sync({("orders", 0): 4})

    with ClusterClient(parse_servers(broker.bootstrap), Security()) as cluster:
        [group] = Meter(cluster, clock).measure(lambda row: row.group == "billing")
        print(f"{group.group}: {group.lag} records, {(group.behind_ms or 0) // 60_000} minutes")

        snapshot = gather(cluster, "billing", clock, watch_ms=0)
        assert snapshot is not None
        print("because of:", explain(snapshot)[0].cause.value)

    # What the service tells; a webhook or a command is told in the same way.
    told = threading.Event()
    alarms = Alarms()

    def tell(alarm: Alarm) -> None:
        print("told:", alarm.details["level"], alarm.details["group"])
        told.set()

    alarms.add(tell)
    late = LevelPolicy(critical=Threshold(behind_ms=60_000), rise_after_ms=0)
    config = LagConfig(every_ms=100, rules=(Rule(groups=("billing",), levels=late),))
    service = LagService({"bootstrap.servers": broker.bootstrap}, config=config, alarms=alarms)
    service.start()
    told.wait(60)
    service.stop()
