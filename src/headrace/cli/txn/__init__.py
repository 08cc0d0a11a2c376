"""`headrace txn`: `verbs.py` lists, describes and aborts transactions."""
