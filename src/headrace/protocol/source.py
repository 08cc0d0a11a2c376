"""The source of a generated function: its lines, and the objects that its names refer to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headrace.protocol.schema import MessageType


class Source(ABC):
    """What the generators of decoders and encoders share.

    Fixed-width values that follow each other are collected in `run` and handled by one struct, so
    a method that emits a line which moves on in the bytes calls `flush` first.
    """

    def __init__(self, cls: MessageType, version: int) -> None:
        self.title = f"{cls.__name__} v{version}"
        self.version = version
        self.flexible = version >= cls.FLEXIBLE
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.run: list[tuple[str, str]] = []
        """The expressions and struct codes of fixed-width values not yet handled."""
        self._depth = 0
        self._names = 0

    def emit(self, line: str) -> None:
        self.lines.append(" " * self._depth + line)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Indent what is emitted inside under an `if`, `for`, `def`…"""
        self.emit(opening)
        self._depth += 1
        before = len(self.lines)
        yield
        self.flush()
        if len(self.lines) == before:
            self.emit("pass")
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A name that nothing else in the function has."""
        self._names += 1
        return f"{stem}_{self._names}"

    def constant(self, stem: str, value: Any) -> str:
        """A name for an object that the function uses."""
        name = self.name(stem)
        self.scope[name] = value
        return name

    @abstractmethod
    def flush(self) -> None:
        """Emit the code for the fixed-width values collected so far."""

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, function: str) -> Any:
        exec(compile(self.text(), f"<{function} of {self.title}>", "exec"), self.scope)
        return self.scope[function]
