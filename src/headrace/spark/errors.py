"""The errors of the source, the sink and pipelines, each with a hint."""

from __future__ import annotations

from headrace.errors import HeadraceError, with_hint

_DATA_LOSS_HINT = (
    "failOnDataLoss=false continues with what is left; "
    "a larger retention.ms of the topic keeps records longer"
)
EXTRA = "pip install 'headrace[spark]'"


class OptionError(HeadraceError, ValueError):
    """An option is unknown, malformed, missing or cannot be used here."""


class DataLoss(HeadraceError, RuntimeError):
    """Records that a query should have read were deleted."""

    def __init__(self, message: str, hint: str = _DATA_LOSS_HINT) -> None:
        super().__init__(message, hint)


class SourceUnreachable(HeadraceError, RuntimeError):
    """The cluster does not answer, or refuses a request of the source."""


class PipelineError(HeadraceError):
    """A pipeline cannot run as it is; a retry would fail the same way."""


class SinkError(PipelineError):
    """Rows cannot be written, or not to this output."""


class CheckpointTooOld(SinkError):
    """The output holds later batches than the checkpoint."""


class PlanChanged(PipelineError):
    """The plan differs from the checkpoint's, so rows could reach other tasks than before."""


def missing_extra(package: str) -> ImportError:
    """The error for a package that is not installed."""
    return ImportError(with_hint(f"{package} is not installed", EXTRA))
