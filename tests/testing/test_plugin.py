"""What the pytest plugin does besides its fixtures."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader

from headrace.handlers import retries as retry_job


def test_our_modules_are_not_parsed_anew_by_pytest() -> None:
    assert type(retry_job.__loader__) is SourceFileLoader
