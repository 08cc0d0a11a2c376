"""Lines of input become records."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli.common.errors import CliError
from headrace.cli.records.lines import LineOptions, read_records


def records(lines: list[bytes], **options: Any) -> list[dict[str, Any]]:
    return list(read_records(lines, LineOptions(**options)))


def test_each_line_is_a_value_without_its_newline() -> None:
    assert records([b"one\n", b"\n", b"last"]) == [
        {"value": b"one"},
        {"value": b""},
        {"value": b"last"},
    ]


def test_the_separator_parts_key_and_value_at_its_first_place() -> None:
    assert records([b"k:v:w\n", b"no key\n"], key_separator=":") == [
        {"key": b"k", "value": b"v:w"},
        {"value": b"no key"},
    ]


def test_every_record_gets_the_fixed_key_headers_and_partition() -> None:
    [record] = records([b"v\n"], key="k", headers=("a=1", "b", "c=x=y"), partition=2)
    assert record == {
        "value": b"v",
        "key": b"k",
        "partition": 2,
        "headers": [("a", b"1"), ("b", None), ("c", b"x=y")],
    }


def test_empty_fields_become_null_when_asked() -> None:
    [record] = records([b"k:\n"], key_separator=":", empty_is_null=True)
    assert record == {"key": b"k", "value": None}


def test_a_json_line_as_consume_prints_it_is_read_back() -> None:
    line = {
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "tstype": "create",
        "ts": 1_700_000_000_000,
        "headers": ["a", "1", "b", None],
        "key": None,
        "payload": "caf\u00e9",
    }
    assert records([json.dumps(line).encode(), b"\n"], as_json=True) == [
        {
            "key": None,
            "value": "caf\u00e9".encode(),
            "headers": [("a", b"1"), ("b", None)],
            "timestamp": 1_700_000_000_000,
        }
    ]


def test_a_json_payload_may_be_base64_or_a_structure() -> None:
    [coded, structure] = records(
        [b'{"payload_base64": "/wA="}', b'{"payload": {"n": [1, 2]}}'], as_json=True
    )
    assert coded["value"] == b"\xff\x00"
    assert structure["value"] == b'{"n":[1,2]}'


@pytest.mark.parametrize("line", [b"nonsense", b"[1]", b'{"headers": ["odd"]}', b'{"ts": "x"}'])
def test_a_bad_json_line_is_named_by_its_number(line: bytes) -> None:
    with pytest.raises(CliError, match="line 2 is not a JSON record"):
        records([b'{"payload": "fine"}', line], as_json=True)


def test_a_header_without_a_name_is_refused() -> None:
    with pytest.raises(CliError, match="not NAME=VALUE"):
        records([b"v"], headers=("=x",))
