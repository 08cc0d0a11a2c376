"""The version of this installation."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path


def version() -> str:
    """Version of the installed package, or of the checkout it runs from."""
    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).parents[4] / "pyproject.toml"
        with project.open("rb") as file:
            return str(tomllib.load(file)["project"]["version"])
