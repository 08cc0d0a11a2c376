"""The lag of consumer groups: measured, judged by alarm levels, and explained; on any Kafka.

`meter.py` measures groups (`group_lag.py`): it lists them, asks for their `members.py` and offsets,
and finds how old the next record is (`ages.py`). `service.py` does that at intervals and feeds
`watch_machine.py`, which moves each group between `levels.py` by its rule (`rules.py`); one process
leads and stores the levels (`level_topic.py`), and `notices.py` go out by `notifiers.py`. To
explain a group, `gather.py` takes a `snapshot.py` of it and `causes/` finds the likely causes.
"""
