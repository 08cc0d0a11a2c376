"""The ledger: what the delay and the half service share, on any Kafka.

Commands come in through an ordinary topic (`intake.py`), move with their offsets into a compacted
twin, and are kept there by id until their time has come (`keeper.py`, one `book.py` for each state
partition). What a service does with them is a pure machine (`machine.py`).
"""
