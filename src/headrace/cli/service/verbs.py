"""`headrace service`: the services, as processes of their own."""

from __future__ import annotations

import logging
import os
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import BootstrapOption, PropertyOption
from headrace.cli.common.durations import parse_duration_ms
from headrace.cli.common.errors import CliError
from headrace.cli.common.pairs import parse_pairs
from headrace.cli.common.signals import on_stop
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


def service(
    names: Annotated[
        list[Name], typer.Argument(metavar="NAME...", help="delay, half, relay, retry, lag.")
    ],
    *,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
    store: StoreOption,
    app: Annotated[
        str | None, typer.Option(metavar="MODULE:APP", help="Whose handlers retry runs.")
    ] = None,
    lag_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Levels and notifiers of lag, in TOML.")
    ] = None,
    cache_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where delay and half keep what is rebuilt at a start."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Of a state topic that is made: as many instances can share."),
    ] = None,
    first_check: Annotated[
        str, typer.Option(metavar="DURATION", help="Half asks first after so long.")
    ] = "6s",
    check_every: Annotated[
        str, typer.Option(metavar="DURATION", help="Then half asks again, so often.")
    ] = "30s",
    checks: Annotated[int, typer.Option(min=1, help="Half parks what nobody decides.")] = 15,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run services until Ctrl-C or SIGTERM; start it as often as wanted, they share the work."""
    from headrace.errors import HandlerError
    from headrace.handlers.services import ServiceOptions
    from headrace.ledger.half.machine import HalfLimits
    from headrace.ledger.service import LedgerOptions
    from headrace.ledger.topics import STATE_PARTITIONS

    # What runs beside a broker tells only what is wrong.
    level = logging.INFO if parent is None else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    ledger = LedgerOptions(state_partitions=partitions or STATE_PARTITIONS, cache_dir=cache_dir)
    half = HalfLimits(
        first_check_ms=parse_duration_ms(first_check, "--first-check"),
        check_every_ms=parse_duration_ms(check_every, "--check-every"),
        checks_max=checks,
    )
    settings = {"bootstrap.servers": bootstrap, **parse_pairs(properties, "-X")}
    options = ServiceOptions(
        settings=settings,
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
        print(f"running {', '.join(dict.fromkeys(names))} on {bootstrap}", flush=True)
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
