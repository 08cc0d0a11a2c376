"""The error of a command: one clear line, and what to do about it."""

from __future__ import annotations

from headrace.errors import HeadraceError


class CliError(HeadraceError):
    """Ends a command with a message, a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code

    def text(self) -> str:
        """The message as printed on standard error."""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"headrace: {self.message}{hint}"
