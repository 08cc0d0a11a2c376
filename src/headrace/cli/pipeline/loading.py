"""What every verb of `headrace pipeline` does first: find the pipeline and the cluster."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.cli.common.connection import KafkaOptions, check_reachable
from headrace.cli.common.errors import CliError
from headrace.cli.common.loading import load_module
from headrace.cli.common.parsing import parse_pairs

if TYPE_CHECKING:
    from headrace.spark.pipelines.definitions import Pipeline


def load_pipelines(module_name: str) -> dict[str, Pipeline]:
    """The pipelines that a module defines, by their names in it."""
    from headrace.spark.pipelines.definitions import Pipeline

    with pipeline_errors():
        module = load_module(module_name)
    found = {name: each for name, each in vars(module).items() if isinstance(each, Pipeline)}
    if not found:
        raise CliError(f"{module_name} defines no pipeline", "@pipeline(source=..., sink=...)")
    return found


def load_pipeline(target: str) -> Pipeline:
    """The pipeline at MODULE:NAME; the name may be left out if there is only one."""
    module_name, _, name = target.partition(":")
    found = load_pipelines(module_name)
    if not name and len(found) == 1:
        return next(iter(found.values()))
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
        hint = f"did you mean {module_name}:{near[0]}?" if near else f"use {', '.join(found)}"
        raise CliError(f"{module_name} defines no pipeline {name!r}", hint)
    return found[name]


def client_settings(kafka: KafkaOptions) -> dict[str, str]:
    """The settings that consumers and producers share, once a broker is known to answer."""
    given = parse_pairs(kafka.properties, "-X")
    with pipeline_errors():
        from headrace.client.settings import common_settings

        settings = {"bootstrap.servers": kafka.bootstrap, **common_settings(given)}
    check_reachable(kafka.bootstrap)
    return settings


@contextmanager
def pipeline_errors() -> Iterator[None]:
    """Turn errors of pipelines into errors of the command."""
    from headrace.client.errors import UnknownSetting
    from headrace.spark.errors import PipelineError

    try:
        yield
    except PipelineError as error:
        raise CliError(error.message, error.hint) from None
    except UnknownSetting as unknown:
        raise CliError(str(unknown), "-X takes the names of Kafka's own clients") from None
    except ImportError as missing:
        if "pip install" not in str(missing):
            raise
        raise CliError(str(missing)) from None
