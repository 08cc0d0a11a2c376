"""Which topic names are valid, and which are too much alike."""

from __future__ import annotations

import pytest

from headrace.metadata.topic_names import NAME_LENGTH_MAX, check_name, collision_key


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "_", "x" * NAME_LENGTH_MAX])
def test_letters_digits_dots_underscores_and_dashes_are_a_name(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * (NAME_LENGTH_MAX + 1), f"250 characters; the limit is {NAME_LENGTH_MAX}"),
        ("a b", "'a b' has a character other than"),
        ("bücher", "has a character other than"),
        ("a\n", "has a character other than"),
    ],
)
def test_other_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_name(name)


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a.b") != collision_key("a-b")
