"""What goes wrong in sinks and pipelines, each with what to do about it."""

from __future__ import annotations


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
