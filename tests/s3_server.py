"""A server of the S3 protocol in this process."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from moto.server import ThreadedMotoServer


class S3Server:
    """moto's server on a port of its own; a context manager."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)

    @property
    def environment(self) -> dict[str, str]:
        """What S3 clients find it by."""
        host, port = self._server.get_host_and_port()
        return {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.stop()
