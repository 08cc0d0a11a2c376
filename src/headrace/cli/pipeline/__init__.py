"""`headrace pipeline`: `verbs.py` and `replays.py` parse and print, `running.py` shows a run."""
