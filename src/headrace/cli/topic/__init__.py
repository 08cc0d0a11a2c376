"""`headrace topic`: `verbs.py` parses and prints, `details.py` is what `describe` shows."""
