"""A switch that an operator turns: python examples/producer_switch.py [HOST:PORT].

The same from a shell: headrace producer off orders; headrace producer limit orders 100
"""

from __future__ import annotations

import sys
import time

from headrace.client import Producer, Switches
from headrace.client.errors import TopicSwitchedOff
from headrace.client.switches import SwitchState, turn

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

with Switches(bootstrap) as switches, Producer(bootstrap, switches=switches) as producer:
    print("on: offset", producer.send_and_wait("orders", "one").offset)
    turn(bootstrap, "orders", SwitchState(is_on=False))
    while switches.state("orders").is_on:
        time.sleep(0.05)
    try:
        producer.send("orders", "two")
    except TopicSwitchedOff as refusal:
        print("off:", refusal)
    turn(bootstrap, "orders", SwitchState(is_on=True))
