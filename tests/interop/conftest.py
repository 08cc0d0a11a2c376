"""One broker for all clients of a test session: Headrace, or Apache Kafka with `--on apache`.

Running the same tests on Apache Kafka shows that they ask for what Kafka does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.brokers import running

# Before the first import, so that a failed check shows what was observed.
pytest.register_assert_rewrite(
    *(f"tests.interop.{name}" for name in ("cases", "group_cases", "transaction_cases", "wire"))
)

from tests.interop.stage import Stage  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=("headrace", "apache"),
        default="headrace",
        help="the broker that tests/interop runs on",
    )


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the broker under test."""
    # The option is unknown when this file was not loaded at start (a run of all tests).
    with running(request.config.getoption("--on", "headrace")) as address:
        yield address


@pytest.fixture(scope="session")
def stage(bootstrap: str) -> Stage:
    return Stage(bootstrap)
