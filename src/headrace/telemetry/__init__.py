"""What the platform reports about itself; every room may use it.

`alarms.py` rings alarms, and `http_server.py` serves metrics and confirmations over HTTP.
"""
