"""What goes wrong between Spark and a topic, each with what to do about it."""

from __future__ import annotations

from headrace.errors import HeadraceError

_DATA_LOSS_HINT = (
    "failOnDataLoss=false goes on with what is there; "
    "retention.ms of the topic keeps records for longer"
)
EXTRA = "pip install 'headrace[spark]'"


class OptionError(HeadraceError, ValueError):
    """An option that is unknown, malformed, missing or of no use here."""


class DataLoss(HeadraceError, RuntimeError):
    """Records that a query should have read are not there any more."""

    def __init__(self, message: str, hint: str = _DATA_LOSS_HINT) -> None:
        super().__init__(message, hint)


class SourceUnreachable(RuntimeError):
    """The cluster does not answer, or refuses what the source needs of it."""


class PipelineError(HeadraceError):
    """A pipeline that cannot run as it is; a retry would fail the same way."""


class SinkError(PipelineError):
    """Rows cannot be written as they are, or not to where they should go."""


class CheckpointTooOld(SinkError):
    """The output holds later batches than the checkpoint knows of."""


class PlanChanged(PipelineError):
    """Rows would reach other tasks than before, while a batch may be half written."""


def missing_extra(package: str) -> ImportError:
    """The error for a package that is not installed."""
    return ImportError(f"{package} is not installed (hint: {EXTRA})")
