"""What the platform reports about itself: `alarms.py` rings alarms. Every room may use it."""
