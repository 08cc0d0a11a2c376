"""Messages declared once for all versions: the class is the schema.

    class FetchPartition(Message):
        partition: int = int32()
        current_leader_epoch: int = int32("9+", default=-1)

A field's first argument says in which versions it is on the wire ("3+", "0-8", "2"), `nullable`
in which of those it may be None, `tag` that it is an optional tagged field (KIP-482). A field that
a version lacks keeps its default when decoded and is left out when encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, dataclass_transform

from headrace.protocol.primitives import ZERO_UUID

VERSION_MAX = 32767


@cache
def parse_versions(text: str) -> range:
    """Turn "3+", "0-8", "2" or "none" into a range of versions."""
    if text == "none":
        return range(0)
    first, dash, last = text.removesuffix("+").partition("-")
    if text.endswith("+"):
        return range(int(first), VERSION_MAX + 1)
    return range(int(first), int(last if dash else first) + 1)


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type of the wire; calling it declares a field of that type."""

    name: str
    zero: Any
    code: str = ""
    """The struct code of a fixed-width type; empty for one that carries its length."""

    def __call__(
        self,
        versions: str = "0+",
        *,
        nullable: str = "none",
        default: Any = ...,
        tag: int | None = None,
        compact: bool = True,
    ) -> Any:
        return Field(
            type=self,
            versions=parse_versions(versions),
            nullable=parse_versions(nullable),
            default=self.zero if default is ... else default,
            tag=tag,
            compact=compact,
        )


@dataclass(slots=True)
class Field:
    """One field of a message, as its class body declares it."""

    type: Primitive | MessageType
    versions: range
    nullable: range
    default: Any
    """A value, or a callable that makes a fresh one."""
    tag: int | None = None
    is_array: bool = False
    compact: bool = True
    """False for the one string that keeps its old form in flexible versions (the client id)."""
    name: str = ""

    def fresh_default(self) -> Any:
        """The value of this field in a message without it."""
        return self.default() if callable(self.default) else self.default


boolean = Primitive("bool", False, "?")
int8 = Primitive("int8", 0, "b")
int16 = Primitive("int16", 0, "h")
uint16 = Primitive("uint16", 0, "H")
int32 = Primitive("int32", 0, "i")
int64 = Primitive("int64", 0, "q")
float64 = Primitive("float64", 0.0, "d")
uuid = Primitive("uuid", ZERO_UUID, "16s")
string = Primitive("string", "")
blob = Primitive("bytes", b"")
batches = Primitive("records", None)
"""Record batches, opaque: decoded as a memoryview of the frame, encoded from any bytes-like."""


def array(
    element: Primitive | MessageType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: Any = list,
    tag: int | None = None,
) -> Any:
    """Declare a field that is a list, of messages or of a primitive type."""
    return Field(
        type=element,
        versions=parse_versions(versions),
        nullable=parse_versions(nullable),
        default=default,
        tag=tag,
        is_array=True,
    )


def struct(
    element: MessageType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int | None = None,
) -> Any:
    """Declare a field that is one nested message; one that may be absent is None by default."""
    may_be_absent = tag is not None or nullable != "none"
    return Field(
        type=element,
        versions=parse_versions(versions),
        nullable=parse_versions(nullable),
        default=None if may_be_absent else element,
        tag=tag,
    )


@dataclass_transform(kw_only_default=True)
class MessageType(type):
    """Turns a class body of field declarations into slots and a field table."""

    FIELDS: tuple[Field, ...]
    VERSIONS: tuple[int, int]
    FLEXIBLE: int

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        key: int = -1,
        versions: str = "none",
        flexible: int = VERSION_MAX + 1,
    ) -> MessageType:
        fields = {name: value for name, value in namespace.items() if isinstance(value, Field)}
        for field_name, field in fields.items():
            field.name = field_name
        body = {name: value for name, value in namespace.items() if name not in fields}
        body |= {"__slots__": tuple(fields), "FIELDS": tuple(fields.values())}
        if versions != "none":
            span = parse_versions(versions)
            body |= {"API_KEY": key, "VERSIONS": (span[0], span[-1]), "FLEXIBLE": flexible}
        return super().__new__(mcs, name, bases, body)

    def __init__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args)


class Message(metaclass=MessageType):
    """A request, a response, a part of one, or a coordinator's log record."""

    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, VERSION_MAX)
    FLEXIBLE: ClassVar[int] = VERSION_MAX + 1
    """The first version with compact lengths and tagged fields."""

    def __init__(self, **values: Any) -> None:
        # Compiling every constructor at import would cost the broker's start a tenth of a second,
        # so a class gets its own on first use.
        cls = type(self)
        type.__setattr__(cls, "__init__", _make_init(cls))
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in type(self).FIELDS)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in type(self).FIELDS)
        return f"{type(self).__name__}({values})"


def _make_init(cls: MessageType) -> Any:
    """Compile a keyword-only constructor with every field's default."""
    scope: dict[str, Any] = {}
    parameters, lines = [], []
    for field in cls.FIELDS:
        name = field.name
        scope[f"default_{name}"] = field.default
        parameters.append(f"{name}=default_{name}")
        value = name
        if callable(field.default):
            value = f"default_{name}() if {name} is default_{name} else {name}"
        lines.append(f" self.{name} = {value}")
    star = "*, " if parameters else ""
    head = f"def __init__(self, {star}{', '.join(parameters)}):"
    exec("\n".join([head, *(lines or [" pass"])]), scope)
    return scope["__init__"]


def fields_of(cls: MessageType, version: int) -> tuple[list[Field], list[Field]]:
    """The fields that a version has on the wire: in order, and tagged in ascending order."""
    present = [field for field in cls.FIELDS if version in field.versions]
    tagged = [field for field in present if field.tag is not None]
    return [f for f in present if f.tag is None], sorted(tagged, key=lambda f: f.tag or 0)


def check_version(cls: MessageType, version: int) -> None:
    """Raise an error for a version that the message does not have."""
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise ValueError(f"{cls.__name__} has versions {first}-{last}, not {version}")
