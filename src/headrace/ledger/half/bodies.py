"""What the state topic keeps of a half message: the whole of it, and a few words once decided."""

from __future__ import annotations

from typing import NamedTuple

from headrace.ledger.packing import pack, pack_message, unpack, unpack_message

Headers = tuple[tuple[str, bytes | None], ...]


class Prepared(NamedTuple):
    """The message itself; `headers` are those that it is delivered with."""

    target: str
    # The producer group that is asked about it.
    group: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    # `headrace-delay` or `headrace-deliver-at` with its value, for one that is delivered later.
    delay: tuple[str, str] | None = None

    def pack(self) -> bytes:
        """As bytes of the state topic."""
        name, when = self.delay or ("", "")
        own = [(self.group, None), (name, when.encode())]
        return pack_message(self.target, self.key, self.value, [*own, *self.headers])

    @classmethod
    def unpack(cls, body: bytes) -> Prepared:
        """From bytes of the state topic."""
        target, key, value, [(group, _), (name, when), *headers] = unpack_message(body)
        delay = (name, (when or b"").decode()) if name else None
        return cls(target, group, key, value, tuple(headers), delay)


class Ended(NamedTuple):
    """What is remembered of one that was decided."""

    target: str
    group: str
    # Why its target would not take it; it is a dead letter then.
    refusal: str = ""

    def pack(self) -> bytes:
        """As bytes of the state topic."""
        return pack([field.encode() for field in self])

    @classmethod
    def unpack(cls, body: bytes) -> Ended:
        """From bytes of the state topic."""
        return cls(*((field or b"").decode() for field in unpack(body)))
