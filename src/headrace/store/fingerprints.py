"""A handler's error as it is stored, with a fingerprint that groups its repeats."""

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
    """An error as it is stored; errors of one class from one place share a fingerprint."""

    error: str
    traceback: str
    place: str
    fingerprint: str


def describe(error: BaseException, handler: str) -> Failure:
    """The failure that an error is.

    Its place is the application frame nearest to where the error was raised, or the handler when
    no frame is the application's.
    """
    place = _place(error) or handler
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else _full_name(kind)
    digest = hashlib.blake2b(f"{name}|{place}".encode(), digest_size=6)
    lines = "".join(traceback.format_exception(kind, error, _without_ours(error.__traceback__)))
    return Failure(
        # Python's own formatting copes with an exception that cannot be printed.
        error=_plain(traceback.format_exception_only(error)[0].strip())[:ERROR_CHARS_MAX],
        # The end says what was raised and where, so a long traceback loses its beginning.
        traceback=_plain(lines)[-TRACEBACK_CHARS_MAX:],
        place=place,
        fingerprint=digest.hexdigest(),
    )


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where we call the application; all of it if we never do."""
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
    # Installed packages are below the library folders; a project is not.
    return not file.startswith(_LIBRARIES)


def _full_name(kind: type[BaseException]) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _plain(text: str) -> str:
    # PostgreSQL refuses zero bytes in text, and UTF-8 cannot hold half a surrogate pair.
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
