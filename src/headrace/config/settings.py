"""Settings: the rows that describe them, and their values in layers, one for each source."""

from __future__ import annotations

import builtins
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import TypeAlias, cast

from headrace.config.kinds import Kind, Value, parse, text_of
from headrace.config.validators import Validator
from headrace.errors import HeadraceError

# The typed accessors of Settings are named after these types, so the class body needs aliases.
_Int: TypeAlias = builtins.int
_Float: TypeAlias = builtins.float
_Bool: TypeAlias = builtins.bool
_Str: TypeAlias = builtins.str
_StrList: TypeAlias = builtins.list[builtins.str]


class ConfigError(HeadraceError, ValueError):
    """A setting that is unknown or has an invalid value, with the reason and the nearest name."""

    def __init__(self, name: str, reason: str, nearest: str | None = None) -> None:
        self.name = name
        self.reason = reason
        self.nearest = nearest
        hint = f" (did you mean {nearest}?)" if nearest else ""
        super().__init__(f"{name}: {reason}{hint}")


class Scope(Enum):
    """How a broker setting may change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"


class Source(IntEnum):
    """Where a value comes from; the number is the one DescribeConfigs puts on the wire."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


# The first layer that holds a name decides its value.
PRECEDENCE = (
    Source.TOPIC,
    Source.DYNAMIC_BROKER,
    Source.DYNAMIC_DEFAULT_BROKER,
    Source.STATIC_BROKER,
    Source.DEFAULT,
)


@dataclass(frozen=True, slots=True)
class Fallback:
    """The broker setting that gives a topic setting its default, in its own unit."""

    name: str
    factor: int = 1

    def convert(self, value: Value) -> Value:
        """Return the broker's value in the topic's unit; unset and -1 (no limit) have no unit."""
        if self.factor == 1 or value in (None, -1):
            return value
        return cast(int, value) * self.factor


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: a setting's kind, name, default, meaning, limits and unit."""

    kind: Kind
    name: str
    default: Value
    doc: str
    valid: Validator | None = None
    _: KW_ONLY
    unit: str = ""
    scope: Scope = Scope.READ_ONLY
    sensitive: bool = False
    # Kafka's default where ours differs; the doc says why.
    kafka_default: str | None = None
    # Why the setting has no effect yet; empty when it has one.
    inert: str = ""
    # For topic settings: the broker settings to fall back on; the first that is set wins.
    fallbacks: tuple[Fallback, ...] = ()

    def parse(self, given: object) -> Value:
        """Turn text or a plain Python value into a value of this kind; raises ConfigError."""
        try:
            value = parse(self.kind, _text(given))
            if self.valid is not None:
                self.valid(value)
        except ValueError as error:
            shown = "the given value" if self.sensitive else repr(given)
            raise ConfigError(self.name, f"{shown} is not valid: {error}") from None
        return value


# A row is written as its kind, called with the rest.
boolean = partial(Setting, Kind.BOOLEAN)
string = partial(Setting, Kind.STRING)
integer = partial(Setting, Kind.INT)
short = partial(Setting, Kind.SHORT)
long = partial(Setting, Kind.LONG)
double = partial(Setting, Kind.DOUBLE)
listing = partial(Setting, Kind.LIST)


def _text(given: object) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, bool | int | float):
        return text_of(given) or ""
    if isinstance(given, list | tuple):
        return ",".join(map(str, given))
    raise ValueError(f"expected text, got {type(given).__name__}")


@dataclass(frozen=True, slots=True)
class Rows:
    """A table of settings, with the rules that span several of them."""

    noun: str
    rows: tuple[Setting, ...]
    rules: tuple[Callable[[Settings], None], ...] = ()
    by_name: dict[str, Setting] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {row.name: row for row in self.rows})
        assert len(self.by_name) == len(self.rows), "a setting is listed twice"

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def row(self, name: str) -> Setting:
        """The row of this name; raises ConfigError with the nearest name if it is unknown."""
        row = self.by_name.get(name)
        if row is None:
            near = difflib.get_close_matches(name, self.by_name, n=1, cutoff=0.6)
            raise ConfigError(name, f"unknown {self.noun}", near[0] if near else None)
        return row

    def parse(self, given: Mapping[str, object]) -> dict[str, Value]:
        """Check every given value; raises ConfigError at the first unknown name or bad value."""
        return {name: self.row(name).parse(value) for name, value in given.items()}


class Settings:
    """Values of a table of rows, in layers by source, with typed accessors.

    A layer may be replaced while the broker runs: read a value at each use to follow changes.
    """

    __slots__ = ("_layers", "_values", "rows")

    def __init__(self, rows: Rows, layers: Mapping[Source, dict[str, Value]]) -> None:
        self.rows = rows
        self._layers = dict(layers)
        self._layers[Source.DEFAULT] = {row.name: row.default for row in rows}
        self._values = self._merge(self._layers)
        self._check()

    @classmethod
    def parse(
        cls,
        rows: Rows,
        given: Mapping[str, object] = {},
        source: Source = Source.STATIC_BROKER,
    ) -> Settings:
        """Read settings from names and values; raises ConfigError at the first invalid one."""
        return cls(rows, {source: rows.parse(given)})

    def int(self, name: _Str) -> _Int:
        """The value of a whole-number setting that is set."""
        return cast(_Int, self._values[name])

    def float(self, name: _Str) -> _Float:
        """The value of a fractional setting."""
        return cast(_Float, self._values[name])

    def bool(self, name: _Str) -> _Bool:
        """The value of a true/false setting."""
        return cast(_Bool, self._values[name])

    def str(self, name: _Str) -> _Str:
        """The value of a text setting that is set."""
        return cast(_Str, self._values[name])

    def optional_str(self, name: _Str) -> _Str | None:
        """The value of a text setting that may be unset."""
        return cast("_Str | None", self._values[name])

    def list(self, name: _Str) -> _StrList:
        """The items of a list setting."""
        return [*cast("tuple[_Str, ...]", self._values[name] or ())]

    def value(self, name: _Str) -> Value:
        """The value of a setting of any kind."""
        return self._values[name]

    def text(self, name: _Str) -> _Str | None:
        """Canonical text of a setting's value; None when it is unset."""
        return text_of(self._values[name])

    def is_default(self, name: _Str) -> _Bool:
        """True if no source sets this setting."""
        return self.source(name) is Source.DEFAULT

    def source(self, name: _Str) -> Source:
        """The layer that decides this setting's value."""
        return next(source for source, _ in self.candidates(name))

    def candidates(self, name: _Str) -> Iterable[tuple[Source, Value]]:
        """Every layer's value of this setting, the deciding one first."""
        for source in PRECEDENCE:
            layer = self._layers.get(source)
            if layer is not None and name in layer:
                yield source, layer[name]

    def layer(self, source: Source) -> Mapping[_Str, Value]:
        """The values that one source holds."""
        return self._layers.get(source, {})

    def given(self) -> dict[_Str, _Str]:
        """Every value that is not a default, as text."""
        return {name: self.text(name) or "" for name in self._values if not self.is_default(name)}

    def check_layer(self, source: Source, given: Mapping[_Str, object]) -> None:
        """Raise ConfigError if this layer would be invalid; changes nothing."""
        Settings(self.rows, {**self._layers, source: self.rows.parse(given)})

    def replace_layer(self, source: Source, given: Mapping[_Str, object]) -> set[_Str]:
        """Replace one layer and return the names of the settings that changed.

        Raises ConfigError for an invalid value; then nothing has changed.
        """
        changed = Settings(self.rows, {**self._layers, source: self.rows.parse(given)})
        names = {name for name, value in self._values.items() if changed._values[name] != value}
        self._layers, self._values = changed._layers, changed._values
        return names

    @staticmethod
    def _merge(layers: Mapping[Source, dict[_Str, Value]]) -> dict[_Str, Value]:
        merged: dict[_Str, Value] = {}
        for source in reversed(PRECEDENCE):
            merged.update(layers.get(source, {}))
        return merged

    def _check(self) -> None:
        for rule in self.rows.rules:
            rule(self)
