"""Delayed messages: delivered once at their time unless cancelled; for any Kafka client.

`machine.py` reads the commands (their headers are in `client/delayed.py`) and decides what happens
to them; `service.py` runs it on the ledger and lists the messages that are waiting.
"""
