"""Writes the source of an encoder for one version of a message.

The source is straight-line, as the decoder's is. In the split form every `records` value is left
out of the bytes and returned as the object that it is, so that a Fetch response can refer to
files or buffers instead of copying them.
"""

from __future__ import annotations

from struct import Struct, pack
from struct import error as StructError

from headrace.protocol.primitives import ProtocolError, write_tags, write_uvarint
from headrace.protocol.schema import Field, MessageType, Primitive, batches, fields_of, string, uuid
from headrace.protocol.source import Source


class EncoderSource(Source):
    """Writes `encode(message, out) -> out`; with `split`, `parts` is a third argument."""

    def __init__(self, cls: MessageType, version: int, *, split: bool) -> None:
        super().__init__(cls, version)
        self.split = split
        self.out = "out"
        self.scope = {
            "pack": pack,
            "write_tags": write_tags,
            "write_uvarint": write_uvarint,
            "ProtocolError": ProtocolError,
            "unwritable": (StructError, AttributeError, TypeError, UnicodeEncodeError),
        }
        with self.block(f"def encode(message, out{', parts' if split else ''}):"):
            with self.block("try:"):
                self.message(cls, "message")
            with self.block("except unwritable as error:"):
                problem = f"{self.title} cannot be written: {{error}}"
                self.emit(f"raise ProtocolError(f'{problem}') from error")
            self.emit("return out")

    def message(self, cls: MessageType, source: str) -> None:
        """Emit the writing of a message's fields."""
        plain, tagged = fields_of(cls, self.version)
        for field in plain:
            self.field(field, f"{source}.{field.name}")
        if tagged:
            self.tags(tagged, source)
        elif self.flexible:
            self.run.append(("", "x"))

    def tags(self, tagged: list[Field], source: str) -> None:
        """Emit the writing of tagged fields that are not the default."""
        self.flush()
        unset = [self.is_unset(field, f"{source}.{field.name}") for field in tagged]
        self.emit(f"if {' and '.join(unset)}: {self.out}.append(0)")
        with self.block("else:"):
            tags = self.name("tags")
            self.emit(f"{tags} = []")
            for field, is_unset in zip(tagged, unset, strict=True):
                with self.block(f"if not {is_unset}:"):
                    outer, self.out = self.out, self.name("body")
                    self.emit(f"{self.out} = bytearray()")
                    self.field(field, f"{source}.{field.name}")
                    self.flush()
                    self.emit(f"{tags}.append(({field.tag}, {self.out}))")
                    self.out = outer
            self.emit(f"write_tags({self.out}, {tags})")

    def is_unset(self, field: Field, value: str) -> str:
        """An expression that is true when a tagged field has its default."""
        if field.default is list:
            return f"({value} == [])"
        if field.default is not None:
            return f"({value} == {field.default!r})"
        if isinstance(field.type, MessageType) and not (field.is_array or field.nullable):
            # A tagged message is left out when it is None or has only defaults.
            return f"({value} is None or {value} == {self.constant('blank', field.type())})"
        return f"({value} is None)"

    def field(self, field: Field, value: str) -> None:
        kind = field.type
        if isinstance(kind, Primitive) and kind.code and not field.is_array:
            self.run.append((value, kind.code))
            return
        held = self.name("value")
        self.flush()
        self.emit(f"{held} = {value}")
        wide = "h" if kind is string and not field.is_array else "i"
        compact = self.flexible and field.compact
        if self.version not in field.nullable:
            self.present(field, held, wide, compact=compact)
            return
        if isinstance(kind, MessageType) and not field.is_array:
            null = b"\xff"
        else:
            null = b"\x00" if compact else pack(">" + wide, -1)
        self.emit(f"if {held} is None: {self.out} += {null!r}")
        with self.block("else:"):
            self.present(field, held, wide, compact=compact)

    def present(self, field: Field, held: str, wide: str, *, compact: bool) -> None:
        """Emit the writing of a value that is not None."""
        kind = field.type
        if field.is_array:
            self.length(held, "i", compact=self.flexible)
            self.elements(kind, held)
        elif isinstance(kind, Primitive):
            self.sized(kind, held, wide, compact=compact)
        else:
            if self.version in field.nullable:
                self.run.append(("1", "b"))
            self.message(kind, held)

    def elements(self, kind: Primitive | MessageType, held: str) -> None:
        if isinstance(kind, Primitive) and kind.code and kind is not uuid:
            self.emit(f"{self.out} += pack(f'>{{len({held})}}{kind.code}', *{held})")
            return
        item = self.name("item")
        with self.block(f"for {item} in {held}:"):
            if isinstance(kind, MessageType):
                self.message(kind, item)
            elif kind.code:
                self.run.append((item, kind.code))
            else:
                self.sized(kind, item, "h" if kind is string else "i", compact=self.flexible)

    def sized(self, kind: Primitive, held: str, wide: str, *, compact: bool) -> None:
        """Emit the writing of a string, bytes or records."""
        if kind is string:
            self.emit(f"{held} = {held}.encode()")
        self.length(held, wide, compact=compact)
        if kind is batches and self.split:
            self.emit(f"parts.append(out); parts.append({held}); out = bytearray()")
        else:
            self.emit(f"{self.out} += {held}")

    def length(self, held: str, wide: str, *, compact: bool) -> None:
        if not compact:
            self.run.append((f"len({held})", wide))
            self.flush()
            return
        size = self.name("n")
        self.emit(f"{size} = len({held}) + 1")
        self.emit(f"if {size} < 128: {self.out}.append({size})")
        self.emit(f"else: write_uvarint({self.out}, {size})")

    def flush(self) -> None:
        if not self.run:
            return
        values = ", ".join(value for value, code in self.run if code != "x")
        codes = "".join(code for _, code in self.run)
        if values:
            packer = self.constant("pack", Struct(">" + codes).pack)
            self.emit(f"{self.out} += {packer}({values})")
        else:
            self.emit(f"{self.out} += {bytes(len(codes))!r}")
        self.run.clear()
