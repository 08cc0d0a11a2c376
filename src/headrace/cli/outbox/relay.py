"""`headrace outbox relay`: the relay as a process of its own, for apps without handlers."""

from __future__ import annotations

import contextlib
import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import BootstrapOption, PropertyOption, check_reachable
from headrace.cli.common.durations import parse_duration_ms
from headrace.cli.common.errors import CliError
from headrace.cli.common.pairs import parse_pairs, split_address
from headrace.cli.common.signals import on_stop
from headrace.cli.common.stores import StoreOption, open_cli_store

if TYPE_CHECKING:
    from headrace.outbox.confirm_http import ConfirmServer
    from headrace.store import Store

HTTP_PORT = 8099


def relay(
    *,
    once: Annotated[bool, typer.Option("--once", help="Send what is there now, and end.")] = False,
    confirm_within: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Send again what nobody confirmed for so long."),
    ] = "5m",
    sends: Annotated[int, typer.Option(min=1, help="Give a message up after so many sends.")] = 10,
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="Remove what was done longer ago.")
    ] = "7d",
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Take confirmations by HTTP there."),
    ] = None,
    http_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The bearer token that HTTP callers must send."),
    ] = None,
    bootstrap: BootstrapOption,
    properties: PropertyOption = None,
    store: StoreOption,
) -> None:
    """Send what the outbox holds, until Ctrl-C or SIGTERM; several processes take turns."""
    from headrace.client.errors import UnknownSetting
    from headrace.client.producer import Producer
    from headrace.client.settings import common_settings, settings_of
    from headrace.client.switches import Switches
    from headrace.large.large import Large
    from headrace.outbox.confirmations import ConfirmationReader
    from headrace.outbox.relay import Relay, RelayLimits

    limits = RelayLimits(
        confirm_within_ms=parse_duration_ms(confirm_within, "--confirm-within"),
        sends_max=sends,
        keep_ms=parse_duration_ms(keep, "--keep"),
    )
    given = {"bootstrap.servers": bootstrap, **parse_pairs(properties, "-X")}
    try:
        # A producer and consumers work here; each takes what it knows.
        of_producer = settings_of(given, "producer")
        settings = common_settings(given)
    except UnknownSetting as unknown:
        raise CliError(f"-X: {unknown}", exit_code=2) from None
    check_reachable(bootstrap)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    stop = threading.Event()
    on_stop(stop.set)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_cli_store(store, create=True))
        producer = stack.enter_context(Producer(of_producer, large=Large()))
        switches = stack.enter_context(Switches(settings))
        worker = Relay(opened, producer, switches, limits=limits)
        stack.callback(worker.close)
        if once:
            # A step that finds only topics to be left alone may be followed by one that does not.
            print(f"sent {sum(iter(lambda: worker.step() or worker.step(), 0))}")
            return
        where = ""
        if http is not None:
            server = stack.enter_context(_http(opened, http, http_token_file))
            where = f", confirmations at http://{server.address}/confirm"
        reader = ConfirmationReader(opened, settings)
        thread = threading.Thread(target=reader.run, args=(stop,), name="headrace-confirmations")
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        print(f"relaying to {bootstrap}{where}", flush=True)
        worker.run(stop)


def _http(store: Store, address: str, token_file: Path | None) -> ConfirmServer:
    from headrace.outbox.confirm_http import ConfirmServer

    host, port = split_address(address, "--http", default_port=HTTP_PORT)
    try:
        token = None if token_file is None else token_file.read_text().strip()
        return ConfirmServer(store, host, port, token=token)
    except (OSError, ValueError) as error:
        raise CliError(f"--http {address}: {error}") from None
