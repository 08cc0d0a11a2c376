"""The page about large messages names every setting and every header."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from headrace import Large
from headrace.errors import HandlerError
from headrace.large import headers

PAGE = (Path(__file__).parents[2] / "docs" / "large.md").read_text()


def test_every_setting_has_its_row_with_its_default() -> None:
    for name, parameter in inspect.signature(Large).parameters.items():
        default = parameter.default
        shown = f'"{default}"' if isinstance(default, str) else str(default)
        assert f"| `{name}` | `{shown}` |" in PAGE, name


def test_every_header_has_its_row() -> None:
    names = {value for value in vars(headers).values() if str(value).startswith("headrace-large")}
    assert len(names) == 9
    for name in names:
        assert f"| `{name}` |" in PAGE


@pytest.mark.parametrize(
    "wrong", [{"way": "mail"}, {"compression": "rar"}, {"above_bytes": 10}, {"chunk_bytes": 0}]
)
def test_a_setting_that_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(HandlerError, match=next(iter(wrong))):
        Large(**wrong)  # type: ignore[arg-type]
