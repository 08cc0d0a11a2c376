"""Half messages in an application's code; the service that holds them is `headrace.ledger.half`.

`half.py` is `app.half(...)`, a block around the sender's local transaction; `sender.py` writes its
commands; `checkers.py` answers the service when it asks what became of a local transaction.
"""
