"""The command line tool: one verb per file, each parses, calls and prints."""

from __future__ import annotations

import sys

from headrace.cli.common.errors import CliError


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
    except CliError as error:
        print(error.text(), file=sys.stderr)
        return error.exit_code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(bool(stop.code))
