"""What goes wrong between Spark and a topic, each with what to do about it."""

from __future__ import annotations

EXTRA = "pip install 'headrace[spark]'"


class OptionError(ValueError):
    """An option that is unknown, malformed, missing or of no use here."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message} (hint: {hint})" if hint else message)
        self.message = message
        self.hint = hint


class DataLoss(RuntimeError):
    """Records that a query should have read are not there any more."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message} (hint: failOnDataLoss=false goes on with what is there; "
            "retention.ms of the topic keeps records for longer)"
        )
        self.message = message


class SourceUnreachable(RuntimeError):
    """The cluster does not answer, or refuses what the source needs of it."""


def missing_extra(package: str) -> ImportError:
    """The error for a package that is not installed."""
    return ImportError(f"{package} is not installed (hint: {EXTRA})")
