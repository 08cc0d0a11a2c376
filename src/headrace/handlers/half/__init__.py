"""Half messages in an application's code: `app.half(...)`, its checkers, and what is sent for it.

The service that holds prepared messages is `headrace.ledger.half`.
"""
