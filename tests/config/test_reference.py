"""The settings page of the docs."""

from __future__ import annotations

from pathlib import Path

from headrace.config import BROKER_ROWS, TOPIC_ROWS
from headrace.config.reference import settings_page

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_settings_page_is_current() -> None:
    assert PAGE.read_text() == settings_page(), (
        "run: python -m headrace.config.reference > docs/settings.md"
    )


def test_every_setting_is_on_the_page() -> None:
    page = settings_page()
    for row in (*BROKER_ROWS, *TOPIC_ROWS):
        assert f"### {row.name}\n" in page
