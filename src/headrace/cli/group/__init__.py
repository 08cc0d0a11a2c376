"""`headrace group`: `verbs.py` parses and prints; `seek.py` moves a group to other offsets.

`details.py` is what `describe` shows.
"""
