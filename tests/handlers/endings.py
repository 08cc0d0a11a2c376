"""Blocks that are to end with an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def ends_with(kind: type[Exception], says: str | None = None) -> Iterator[None]:
    """The block, which may do something before, ends with this error."""
    with pytest.raises(kind, match=says):
        yield
