"""Half messages: prepared first, and delivered once their sender's local transaction committed.

`commands.py` reads prepare, commit and rollback from headers; `machine.py` obeys the table in
`states.py`; `service.py` runs it on the ledger and shows the half messages that it knows. The
application's side is `handlers/half/`.
"""
