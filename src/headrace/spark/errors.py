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


class PipelineError(Exception):
    """A message and a hint; trying again without a change does not help."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (hint: {self.hint})" if self.hint else self.message


class SinkError(PipelineError):
    """Rows cannot be written as they are, or not to where they should go."""


class CheckpointTooOld(SinkError):
    """The output holds later batches than the checkpoint knows of."""


class PlanChanged(PipelineError):
    """Rows would reach other tasks than before, while a batch may be half written."""


def missing_extra(package: str) -> ImportError:
    """The error for a package that is not installed."""
    return ImportError(f"{package} is not installed (hint: {EXTRA})")
