"""The errors of commands: one clear line, and what to do about it."""

from __future__ import annotations

from headrace.errors import HeadraceError


class CliError(HeadraceError):
    """Ends a command with a message, a hint and an exit code; 2 is for wrong arguments."""

    def __init__(self, message: str, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


def error_text(error: HeadraceError) -> str:
    """An error as printed on standard error."""
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    return f"headrace: {error.message}{hint}"
