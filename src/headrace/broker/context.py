"""What a handler knows of the request beside its body."""

from __future__ import annotations

ANONYMOUS = "User:ANONYMOUS"


class Context:
    """The version, the client and the peer of one request."""

    __slots__ = ("api_key", "api_version", "client_id", "listener", "peer", "principal")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        client_id: str | None,
        peer: str = "127.0.0.1",
        listener: str = "PLAINTEXT",
        principal: str = ANONYMOUS,
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.peer = peer
        self.listener = listener
        self.principal = principal
