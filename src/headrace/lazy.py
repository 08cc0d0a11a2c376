"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


def lazy_names(
    package: str, **names: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package: module="Name Name" says where each name is.

    Type checkers do not see these; the package imports the same names under TYPE_CHECKING.
    """
    homes = {name: module for module, listed in names.items() for name in listed.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name].replace('__', '.')}"), name)

    return get, lambda: sorted(homes)
