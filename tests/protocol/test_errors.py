"""Error codes: Kafka's numbers and names, and which to try again."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from headrace.protocol.errors import ErrorCode, KafkaError


def test_codes_names_and_retriability_are_kafkas() -> None:
    ours = {int(code): (code.name.lower(), code.retriable) for code in ErrorCode}
    theirs = {int(code): (code.name, code.retriable) for code in KioErrorCode}
    assert {code: ours[code] for code in theirs} == theirs


def test_codes_have_no_holes_and_each_says_something_of_its_own() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, len(ErrorCode) - 1))
    assert len({code.text for code in ErrorCode}) == len(ErrorCode)
    assert all(code.text.endswith(".") for code in ErrorCode)


def test_an_error_carries_its_code_and_what_to_tell_a_person() -> None:
    plain = KafkaError(ErrorCode.INVALID_RECORD)
    said = KafkaError(ErrorCode.INVALID_RECORD, "the record has no key")
    assert plain.message == ErrorCode.INVALID_RECORD.text
    assert (said.code, said.message) == (87, "the record has no key")
    assert "INVALID_RECORD" in repr(said)
