"""Writes the source of a decoder for one version of a message.

The source is straight-line: nested messages are inlined, and a run of fixed-width fields together
with the length that follows it is read by one struct. Two rules keep it both short and safe:

- A position only ever grows, and it is compared with the end of the frame before a list is made
  and once at the very end; values read beyond the end in between are discarded.
- A list is refused when its elements at their smallest would not fit in what is left, so that no
  frame can ask for more memory than its own size pays for.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from struct import error as StructError

from headrace.protocol.primitives import ProtocolError, more_uvarint, read_tag, skip_tags
from headrace.protocol.schema import Field, MessageType, Primitive, batches, fields_of, string, uuid
from headrace.protocol.source import Source


class DecoderSource(Source):
    """Writes `decode(buf, pos, end) -> (message, pos)`."""

    def __init__(self, cls: MessageType, version: int) -> None:
        super().__init__(cls, version)
        self.scope = {
            "new": object.__new__,
            "more": more_uvarint,
            "read_tag": read_tag,
            "skip_tags": skip_tags,
            "unpack_from": unpack_from,
            "ProtocolError": ProtocolError,
            "malformed": (IndexError, StructError, UnicodeDecodeError),
        }
        with self.block("def decode(buf, pos, end):"):
            with self.block("try:"):
                if _has_records(cls, version):
                    self.emit("view = buf if type(buf) is memoryview else memoryview(buf)")
                self.message(cls, "message")
            with self.block("except malformed as error:"):
                problem = f"{self.title} is malformed: {{error}}"
                self.emit(f"raise ProtocolError(f'{problem}') from error")
            self.emit(f"if pos > end: raise ProtocolError('{self.title} is cut short')")
            self.emit("return message, pos")

    def message(self, cls: MessageType, target: str) -> None:
        """Emit the making of a message and the reading of its fields."""
        self.emit(f"{target} = new({self.constant('cls', cls)})")
        plain, tagged = fields_of(cls, self.version)
        for field in cls.FIELDS:
            if field not in plain:
                self.emit(f"{target}.{field.name} = {self.default(field)}")
        for field in plain:
            self.field(field, f"{target}.{field.name}")
        if self.flexible:
            self.tags(tagged, target)

    def default(self, field: Field) -> str:
        if field.default is list:
            return "[]"
        if callable(field.default):
            return self.constant("default", field.default) + "()"
        return repr(field.default)

    def tags(self, tagged: list[Field], target: str) -> None:
        """Emit the reading of the tagged fields at the end of a message."""
        count = self.name("n")
        self.run.append((count, "B"))
        self.flush()
        if not tagged:
            self.emit(f"if {count}: pos = skip_tags(buf, pos, end, {count})")
            return
        tag, stop = self.name("tag"), self.name("stop")
        with self.block(f"if {count}:"):
            self.emit(f"if {count} > 127: {count}, pos = more(buf, pos, {count})")
            self.emit(f"{tag} = -1")
            with self.block(f"for _ in range({count}):"):
                self.emit(f"{tag}, pos, {stop} = read_tag(buf, pos, end, {tag})")
                keyword = "if"
                for field in tagged:
                    with self.block(f"{keyword} {tag} == {field.tag}:"):
                        self.field(field, f"{target}.{field.name}")
                        self.flush()
                        problem = f"tagged field {field.tag} has a wrong size"
                        self.emit(f"if pos != {stop}: raise ProtocolError('{problem}')")
                    keyword = "elif"
                self.emit(f"else: pos = {stop}")

    def field(self, field: Field, target: str) -> None:
        nullable = self.version in field.nullable
        if field.is_array:
            self.array(field.type, target, nullable)
        elif isinstance(field.type, Primitive):
            self.primitive(field.type, target, nullable, compact=self.flexible and field.compact)
        elif not nullable:
            self.nested(field.type, target)
        else:
            mark = self.name("mark")
            self.run.append((mark, "b"))
            self.flush()
            self.emit(f"if {mark} < 0: {target} = None")
            with self.block("else:"):
                self.nested(field.type, target)

    def nested(self, cls: MessageType, target: str) -> None:
        part = self.name("part")
        self.message(cls, part)
        self.emit(f"{target} = {part}")

    def primitive(self, kind: Primitive, target: str, nullable: bool, *, compact: bool) -> None:
        if kind.code:
            self.run.append((target, kind.code))
            return
        size = self.length(target, nullable, "h" if kind is string else "i", compact=compact)
        with self.block("else:"):
            stop = self.name("stop")
            self.emit(f"{stop} = pos + {size}")
            self.emit(f"{target} = {READERS[kind.name].format(stop=stop)}; pos = {stop}")

    def array(self, kind: Primitive | MessageType, target: str, nullable: bool) -> None:
        size = self.length(target, nullable, "i", compact=self.flexible)
        with self.block("else:"):
            least = self.smallest(kind)
            self.emit(f"if {size} * {least} > end - pos: raise ProtocolError('a list is too long')")
            if isinstance(kind, Primitive) and kind.code and kind is not uuid:
                self.emit(f"{target} = list(unpack_from(f'>{{{size}}}{kind.code}', buf, pos))")
                self.emit(f"pos += {size} * {least}")
                return
            items, item = self.name("items"), self.name("item")
            self.emit(f"{items} = []")
            with self.block(f"for _ in range({size}):"):
                if isinstance(kind, Primitive):
                    self.primitive(kind, item, False, compact=self.flexible)
                else:
                    self.message(kind, item)
                self.flush()
                self.emit(f"{items}.append({item})")
            self.emit(f"{target} = {items}")

    def length(self, target: str, nullable: bool, wide: str, *, compact: bool) -> str:
        """Emit the reading of a length and what to do without one; an `else:` must follow."""
        size = self.name("n")
        self.run.append((size, "B" if compact else wide))
        self.flush()
        if compact:
            self.emit(f"if {size} > 127: {size}, pos = more(buf, pos, {size})")
            self.emit(f"{size} -= 1")
        else:
            self.emit(f"if {size} < -1: raise ProtocolError('a length is negative')")
        if nullable:
            self.emit(f"if {size} < 0: {target} = None")
        else:
            problem = f"{target.rpartition('.')[2]} must not be null"
            self.emit(f"if {size} < 0: raise ProtocolError('{problem}')")
        return size

    def flush(self) -> None:
        if not self.run:
            return
        targets = ", ".join(target for target, _ in self.run)
        codes = "".join(code for _, code in self.run)
        if codes == "B":
            self.emit(f"{targets} = buf[pos]; pos += 1")
        else:
            layout = Struct(">" + codes)
            unpack = self.constant("unpack", layout.unpack_from)
            comma = "," if len(self.run) == 1 else ""
            self.emit(f"{targets}{comma} = {unpack}(buf, pos); pos += {layout.size}")
        self.run.clear()

    def smallest(self, kind: Primitive | MessageType) -> int:
        """The least number of bytes that a value can take."""
        if isinstance(kind, Primitive):
            if kind.code:
                return Struct(">" + kind.code).size
            return 1 if self.flexible else 2 if kind is string else 4
        plain, _ = fields_of(kind, self.version)
        total = 1 if self.flexible else 0
        for field in plain:
            if field.is_array:
                total += 1 if self.flexible else 4
            elif isinstance(field.type, MessageType) and self.version in field.nullable:
                total += 1
            else:
                total += self.smallest(field.type)
        # A message without any field in this version would otherwise cost nothing to repeat.
        return max(total, 1)


READERS = {
    "string": "str(buf[pos:{stop}], 'utf-8')",
    "bytes": "bytes(buf[pos:{stop}])",
    "records": "view[pos:{stop}]",
}


def _has_records(cls: MessageType, version: int) -> bool:
    plain, _ = fields_of(cls, version)
    return any(
        _has_records(field.type, version)
        if isinstance(field.type, MessageType)
        else field.type is batches
        for field in plain
    )
