"""What an error is, in a form that groups its repeats: kind, place, text and traceback."""

from __future__ import annotations

import hashlib
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

ERROR_CHARS_MAX = 500
TRACEBACK_CHARS_MAX = 16_000

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = tuple(
    sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is stored: errors of one kind from one place share a fingerprint."""

    error: str
    traceback: str
    place: str
    fingerprint: str


def describe(error: BaseException, handler: str) -> Failure:
    """The failure of a handler by this error; its place is the first application frame, seen from
    where the error was raised, or the handler when no frame is the application's."""
    place = _place(error) or handler
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)
    digest = hashlib.blake2b(f"{name}|{place}".encode(), digest_size=6)
    lines = "".join(traceback.format_exception(kind, error, _without_ours(error.__traceback__)))
    return Failure(
        # Python's own words for it, which survive an exception that cannot be printed.
        error=_plain(traceback.format_exception_only(error)[0].strip())[:ERROR_CHARS_MAX],
        # The end says what was raised and where, so a long traceback loses its beginning.
        traceback=_plain(lines)[-TRACEBACK_CHARS_MAX:],
        place=place,
        fingerprint=digest.hexdigest(),
    )


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the layer calls the application; all of it if it never does."""
    rest = trace
    while rest is not None and rest.tb_frame.f_code.co_filename.startswith(_OURS):
        rest = rest.tb_next
    return rest or trace


def _place(error: BaseException) -> str:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((_name(frame) for frame in reversed(frames) if _is_application(frame)), "")


def _name(frame: FrameType) -> str:
    # No line number: an edit above the place would split the group.
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _is_application(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if file.startswith(("<frozen", _OURS)):
        return False
    # Packages lie below the standard library's folder, and a project may lie below neither.
    return not file.startswith(_LIBRARIES)


def _full_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _plain(text: str) -> str:
    # PostgreSQL takes no zero byte in a text, and nobody takes half a surrogate pair.
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
