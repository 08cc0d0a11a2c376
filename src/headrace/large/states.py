"""The states of a message in chunks at its reader and every way from one to another, as one table.

Reassembly moves a message only by looking an event up in it; tests enumerate it, the docs draw it.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a reader knows of a message; of the last three only that it is over."""

    NEW = "nothing of it has come"
    OPEN = "chunks are missing"
    SPOILED = "a chunk is not what its digest says, or one too many; its end has not come"
    RECALLED = "its end is there, and chunks before it are read again"
    WHOLE = "handed on"
    BROKEN = "handed on as a broken one: a dead letter"
    GIVEN_UP = "nobody finished it"


class Event(Enum):
    """What happens to a message."""

    CHUNK = "a chunk"
    UNNEEDED = "a chunk again, or too late"
    WRONG = "a wrong chunk"
    LAST = "the last chunk, earlier ones missing"
    FULL = "the chunk that was missing"
    DIFFERS = "its end, and it is not what was sent"
    LAPSED = "too old, too many, too far behind"
    LOST = "no room, or the topic is away"
    TOO_FAR = "its beginning is too far back"


class Kind(Enum):
    """What is done about it."""

    KEEP = "keep its bytes"
    REPEAT = "drop it"
    WHOLE = "keep its bytes, hand the message on"
    RECALL = "keep its bytes, read from the first on"
    BROKEN = "ring large-broken, hand it on"
    GIVE_UP = "ring large-incomplete"
    AGAIN = "read it again"


_S, _E, _K = State, Event, Kind

TABLE: dict[tuple[State, Event], tuple[State, Kind]] = {
    (_S.NEW, _E.CHUNK): (_S.OPEN, _K.KEEP),
    (_S.NEW, _E.WRONG): (_S.SPOILED, _K.REPEAT),
    (_S.NEW, _E.LAST): (_S.RECALLED, _K.RECALL),
    (_S.NEW, _E.FULL): (_S.WHOLE, _K.WHOLE),
    (_S.NEW, _E.DIFFERS): (_S.BROKEN, _K.BROKEN),
    (_S.OPEN, _E.CHUNK): (_S.OPEN, _K.KEEP),
    (_S.OPEN, _E.UNNEEDED): (_S.OPEN, _K.REPEAT),
    (_S.OPEN, _E.WRONG): (_S.SPOILED, _K.REPEAT),
    (_S.OPEN, _E.LAST): (_S.RECALLED, _K.RECALL),
    (_S.OPEN, _E.FULL): (_S.WHOLE, _K.WHOLE),
    (_S.OPEN, _E.DIFFERS): (_S.BROKEN, _K.BROKEN),
    (_S.OPEN, _E.LAPSED): (_S.GIVEN_UP, _K.GIVE_UP),
    (_S.OPEN, _E.LOST): (_S.OPEN, _K.AGAIN),
    (_S.SPOILED, _E.WRONG): (_S.SPOILED, _K.REPEAT),
    (_S.SPOILED, _E.DIFFERS): (_S.BROKEN, _K.BROKEN),
    (_S.SPOILED, _E.LAPSED): (_S.GIVEN_UP, _K.GIVE_UP),
    (_S.RECALLED, _E.CHUNK): (_S.RECALLED, _K.KEEP),
    (_S.RECALLED, _E.UNNEEDED): (_S.RECALLED, _K.REPEAT),
    # A second end, with other chunks missing: somebody plays with an id. It is read back once.
    (_S.RECALLED, _E.LAST): (_S.RECALLED, _K.KEEP),
    (_S.RECALLED, _E.FULL): (_S.WHOLE, _K.WHOLE),
    (_S.RECALLED, _E.DIFFERS): (_S.BROKEN, _K.BROKEN),
    (_S.RECALLED, _E.LAPSED): (_S.GIVEN_UP, _K.GIVE_UP),
    (_S.RECALLED, _E.LOST): (_S.OPEN, _K.AGAIN),
    (_S.RECALLED, _E.TOO_FAR): (_S.BROKEN, _K.BROKEN),
    (_S.WHOLE, _E.UNNEEDED): (_S.WHOLE, _K.REPEAT),
    # The room ran out with the very chunk that was missing.
    (_S.WHOLE, _E.LOST): (_S.OPEN, _K.AGAIN),
    (_S.BROKEN, _E.UNNEEDED): (_S.BROKEN, _K.REPEAT),
    (_S.GIVEN_UP, _E.UNNEEDED): (_S.GIVEN_UP, _K.REPEAT),
    (_S.GIVEN_UP, _E.CHUNK): (_S.OPEN, _K.KEEP),
    (_S.GIVEN_UP, _E.LAST): (_S.RECALLED, _K.RECALL),
    (_S.GIVEN_UP, _E.FULL): (_S.WHOLE, _K.WHOLE),
    (_S.GIVEN_UP, _E.DIFFERS): (_S.BROKEN, _K.BROKEN),
}
