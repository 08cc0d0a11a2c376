"""The fast path to a running broker: `up` and `broker` with plain options, without typer.

Importing typer takes about as long as starting the broker, which has to answer within half a
second. So the usual forms of these two verbs are parsed here; anything else on the command line
(--help, a mistake, an abbreviation) is left to typer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.cli.broker.serving import ServeOptions


def start_quickly(arguments: list[str]) -> bool:
    """Run `up` or `broker` and return True if the arguments are plain; else just return False."""
    options = read_plain(arguments[1:])
    if options is None:
        return False
    if arguments[0] == "up":
        from headrace.cli.broker.up import run_up

        run_up(options)
    else:
        from headrace.cli.broker.broker import run_broker

        run_broker(options)
    return True


def read_plain(arguments: list[str]) -> ServeOptions | None:
    """Read options of the form `--name value`; None if there is anything else."""
    fields: dict[str, Any] = {}
    pairs: list[str] = []
    rest = iter(arguments)
    for option in rest:
        if option == "--allow-insecure-listen":
            fields["allow_insecure_listen"] = True
            continue
        value = next(rest, None)
        if value is None or value.startswith("-"):
            return None
        if option == "--listen":
            fields["listen"] = value
        elif option == "--data-dir":
            fields["data_dir"] = Path(value)
        elif option == "--config":
            fields["config"] = Path(value)
        elif option == "--set":
            pairs.append(value)
        else:
            return None
    return ServeOptions(**fields, set=tuple(pairs))
