"""Records made by hand."""

from __future__ import annotations

from headrace.client.message import Headers


class FakeRecord:
    """A record as confluent-kafka has it."""

    def __init__(self, partition: int, offset: int, key: bytes | None, size: int = 4) -> None:
        self._partition, self._offset, self._key = partition, offset, key
        self._size = size

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return b"%d" % self._offset

    def headers(self) -> Headers | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def __len__(self) -> int:
        return self._size
