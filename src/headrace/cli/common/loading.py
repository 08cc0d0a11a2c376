"""Loading objects of the user's code by MODULE:NAME."""

from __future__ import annotations

import difflib
import importlib
import sys
from types import ModuleType
from typing import TypeVar

from headrace.cli.common.errors import CliError

Kind = TypeVar("Kind")


def load_module(name: str) -> ModuleType:
    """Import a module, with the working directory on the path."""
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name not in (name, name.partition(".")[0]):
            raise
        raise CliError(
            f"there is no module {name!r}", "run the command in the folder of your code"
        ) from None


def load_object(target: str, kind: type[Kind], called: str, usage: str, made: str) -> Kind:
    """The object at MODULE:NAME; the hint of an error is the nearest one, or how to make one.

    `called` is its kind, such as "an App"; `usage` is a command, `made` a line of code.
    """
    module_name, _, name = target.partition(":")
    if not name:
        raise CliError(f"{target!r} is not MODULE:{kind.__name__.upper()}", usage, 2)
    module = load_module(module_name)
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        named = [key for key, value in vars(module).items() if isinstance(value, kind)]
        near = difflib.get_close_matches(name, named, n=1, cutoff=0.1)
        hint = f"did you mean {module_name}:{near[0]}?" if near else made
        raise CliError(f"{name!r} in module {module_name} is not {called}", hint)
    return found
