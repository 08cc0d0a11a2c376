"""SaslHandshake (key 17), v0-1: which SASL mechanism is to be used.

v1: the exchange goes on in SaslAuthenticate requests instead of bare frames.
"""

from __future__ import annotations

from headrace.protocol.schema import Message, array, int16, string


class SaslHandshakeRequest(Message, key=17, versions="0-1"):
    mechanism: str = string()


class SaslHandshakeResponse(Message, key=17, versions="0-1"):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
