"""What the platform reports about itself: alarms for people (`alarms.py`). Every room may use it."""
