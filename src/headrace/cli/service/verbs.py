"""`headrace service`: run services, each of which may run in several processes."""

from __future__ import annotations

import logging
import os
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.parsing import parse_duration_ms
from headrace.cli.common.processes import on_stop, start_logging
from headrace.cli.common.stores import StoreOption

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.services import Service, ServiceOptions

PARENT_LOOK_SECONDS = 0.5


class Name(StrEnum):
    """The services."""

    delay = "delay"
    half = "half"
    relay = "relay"
    retry = "retry"
    lag = "lag"


@with_groups
def service(
    names: Annotated[
        list[Name], typer.Argument(metavar="NAME...", help="delay, half, relay, retry, lag.")
    ],
    *,
    kafka: KafkaOptions,
    store: StoreOption,
    app: Annotated[
        str | None, typer.Option(metavar="MODULE:APP", help="The app whose handlers retry runs.")
    ] = None,
    lag_config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Levels and notifiers of lag, in TOML."),
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Cache of delay and half, rebuilt if it is missing."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Of a new state topic; as many processes can share its work."),
    ] = None,
    first_check: Annotated[
        str,
        typer.Option(metavar="DURATION", help="When half first asks the sender."),
    ] = "6s",
    check_every: Annotated[
        str, typer.Option(metavar="DURATION", help="How often half asks again.")
    ] = "30s",
    checks: Annotated[int, typer.Option(min=1, help="How often half asks before it parks.")] = 15,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run services until Ctrl-C or SIGTERM; run as many as you like, they share the work."""
    from headrace.errors import HandlerError
    from headrace.handlers.services import ServiceOptions
    from headrace.ledger.half.machine import HalfLimits
    from headrace.ledger.service import LedgerOptions
    from headrace.ledger.topics import STATE_PARTITIONS

    # Beside a broker, only warnings are logged.
    level = logging.INFO if parent is None else logging.WARNING
    start_logging(level)
    ledger = LedgerOptions(state_partitions=partitions or STATE_PARTITIONS, cache_dir=cache_dir)
    half = HalfLimits(
        first_check_ms=parse_duration_ms(first_check, "--first-check"),
        check_every_ms=parse_duration_ms(check_every, "--check-every"),
        checks_max=checks,
    )
    options = ServiceOptions(
        settings=kafka.given(),
        ledger=ledger,
        half=half,
        store_url=store,
        app=_app(app),
        lag_config=lag_config,
    )
    stop = threading.Event()
    on_stop(stop.set)
    try:
        services = _make(list(dict.fromkeys(names)), options)
    except HandlerError as error:
        raise CliError(error.message, error.hint, exit_code=2) from None
    started: list[Service] = []
    try:
        for one in services:
            one.start()
            started.append(one)
        print(f"running {', '.join(dict.fromkeys(names))} on {kafka.bootstrap}", flush=True)
        while not stop.wait(PARENT_LOOK_SECONDS):
            if parent is not None and os.getppid() != parent:
                break
    finally:
        for one in started:
            one.stop()


def _make(names: list[Name], options: ServiceOptions) -> list[Service]:
    from headrace.client.errors import UnknownSetting
    from headrace.client.settings import settings_of
    from headrace.handlers.services import make_service

    try:
        settings_of(options.settings, "producer")
    except UnknownSetting as unknown:
        raise CliError(f"-X: {unknown}", exit_code=2) from None
    return [make_service(name, options) for name in names]


def _app(target: str | None) -> App | None:
    from headrace.cli.run.verbs import load_app

    return None if target is None else load_app(target)
