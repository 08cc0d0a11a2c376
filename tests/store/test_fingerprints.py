"""Errors of one kind from one place share a fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headrace.client.payloads import decoder
from headrace.errors import UndecodablePayload
from headrace.store.fingerprints import ERROR_CHARS_MAX, Failure, describe


def failure_of(work: Callable[[], object]) -> Failure:
    try:
        work()
    except Exception as error:
        return describe(error, "shop.bill")
    raise AssertionError("it did not fail")


def charge(amount: str) -> int:
    if amount == "":
        raise KeyError("nothing")
    return int(amount)


def parse(text: str) -> object:
    return json.loads(text)


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error cannot even be printed")


def test_the_same_error_from_the_same_place_is_the_same_whatever_its_text() -> None:
    first, second = failure_of(lambda: charge("x")), failure_of(lambda: charge("y"))
    assert first.fingerprint == second.fingerprint
    assert first.error != second.error
    assert first.error == "ValueError: invalid literal for int() with base 10: 'x'"
    assert first.place.endswith("test_fingerprints.charge")
    assert "return int(amount)" in first.traceback


def test_another_kind_of_error_is_another_failure() -> None:
    assert failure_of(lambda: charge("")).fingerprint != failure_of(lambda: charge("x")).fingerprint


def test_the_place_is_the_first_frame_of_the_application_behind_its_libraries() -> None:
    failure = failure_of(lambda: parse("{"))
    assert failure.place.endswith("test_fingerprints.parse")


def test_an_error_before_any_frame_of_the_application_belongs_to_its_handler() -> None:
    with pytest.raises(UndecodablePayload) as caught:
        decoder(str)(b"\xff")
    # As it is caught inside the layer, where the test's own frame is not part of it.
    caught.value.__traceback__ = caught.tb.tb_next
    assert describe(caught.value, "shop.bill").place == "shop.bill"


def test_texts_fit_any_database() -> None:
    def fail() -> None:
        raise ValueError("zero \0 and half a pair \ud800 " + "x" * 1000)

    failure = failure_of(fail)
    assert "\0" not in failure.error + failure.traceback
    assert failure.error.encode()
    assert len(failure.error) == ERROR_CHARS_MAX


def test_an_error_that_cannot_be_printed_is_described_all_the_same() -> None:
    def fail() -> None:
        raise Odd

    assert "Odd" in failure_of(fail).error
