"""Format strings and JSON lines, on messages made by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.records.formats import compile_format, format_json


@dataclass
class FakeMessage:
    """As confluent-kafka's, which cannot be made without a broker."""

    key_: bytes | None = b"k1"
    value_: bytes | None = b"v1"
    headers_: list[tuple[str, bytes | None]] | None = field(
        default_factory=lambda: [("a", b"1"), ("b", None)]
    )
    timestamp_: tuple[int, int] = (1, 1_700_000_000_123)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.headers_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("%s\\n", b"v1\n"),
        ("%v", b"v1"),
        ("%t [%p] at %o: key %k = %s\\n", b"orders [3] at 42: key k1 = v1\n"),
        ("%T", b"1700000000123"),
        ("%h", b"a=1,b=NULL"),
        ("%K %S %R", b"2 2 \x00\x00\x00\x02"),
        ("100%%\\t\\x41\\\\", b"100%\tA\\"),
        ("caf\u00e9", "caf\u00e9".encode()),
        ("\\q", b"\\q"),
    ],
)
def test_tokens_and_escapes_print_as_kcat_prints_them(template: str, printed: bytes) -> None:
    assert compile_format(template)(FakeMessage()) == printed


def test_null_key_and_value_have_length_minus_one_and_print_nothing() -> None:
    message = FakeMessage(key_=None, value_=None, headers_=None)
    assert compile_format("[%k|%s|%h] %K %S")(message) == b"[||] -1 -1"


@pytest.mark.parametrize("template", ["%q", "%", "\\xzz"])
def test_a_format_that_cannot_be_read_is_refused(template: str) -> None:
    with pytest.raises(CliError, match="format"):
        compile_format(template)


def test_a_json_line_has_kcats_names() -> None:
    line = format_json(FakeMessage())
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "tstype": "create",
        "ts": 1_700_000_000_123,
        "headers": ["a", "1", "b", None],
        "key": "k1",
        "payload": "v1",
    }


def test_bytes_that_are_no_text_are_carried_in_base64() -> None:
    fields = json.loads(format_json(FakeMessage(key_=None, value_=b"\xff\x00", headers_=None)))
    assert fields["key"] is None
    assert fields["payload_base64"] == "/wA="
    assert "payload" not in fields
