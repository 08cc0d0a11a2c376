"""The command line tool: a folder for each noun; a verb parses, calls and prints.

`app.py` lists the verbs; `common/` has the options and listings that they share. Errors of every
room are printed here, in one format.
"""

from __future__ import annotations

import sys

from headrace.cli.common.errors import error_text
from headrace.errors import HeadraceError


def main() -> None:
    """Run the tool with the process's arguments and exit with its code."""
    sys.exit(run_command(sys.argv[1:]))


def run_command(arguments: list[str]) -> int:
    """Run one command and return its exit code; errors are one line and a hint, no traceback."""
    try:
        if arguments[:1] in (["up"], ["broker"]):
            from headrace.cli.broker.quick import start_quickly

            if start_quickly(arguments):
                return 0
        from headrace.cli.app import command

        return int(command()(args=arguments, prog_name="headrace", standalone_mode=True) or 0)
    except HeadraceError as error:
        print(error_text(error), file=sys.stderr)
        return getattr(error, "exit_code", 1)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
