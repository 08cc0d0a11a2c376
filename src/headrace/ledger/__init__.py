"""The ledger: state in a compacted topic, for the delay and the half service, on any Kafka.

`service.py` runs one instance. Its `intake.py` moves commands from an ordinary topic to the state
topic (`records.py`), in one transaction with its offsets. Its `owner.py` reads the state partitions
that it owns into memory (`state_partition.py` over `entries.py`) and, when an entry is due, sends
its records and deletes it in one transaction; `targets.py` keeps a bad target from holding up the
others. What an entry means is up to a pure machine (`machine.py` is the port, `delay/` and `half/`
implement it). `clients.py` holds the Kafka clients, `topics.py` the names, `restart_loop.py` starts
a thread again after a failure, and `inspection.py` shows the entries to operators.
"""
