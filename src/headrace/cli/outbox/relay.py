"""`headrace outbox relay`: the relay as a process of its own, for apps without handlers."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.common.connection import KafkaOptions, check_reachable
from headrace.cli.common.errors import CliError
from headrace.cli.common.option_groups import with_groups
from headrace.cli.common.parsing import parse_duration_ms, split_address
from headrace.cli.common.processes import on_stop, start_logging
from headrace.cli.common.stores import StoreOption, open_cli_store

if TYPE_CHECKING:
    from headrace.outbox.confirm_http import ConfirmServer
    from headrace.store import Store

HTTP_PORT = 8099


@with_groups
def relay(
    *,
    once: Annotated[bool, typer.Option("--once", help="Send what is pending, and exit.")] = False,
    confirm_within: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Resend what is not confirmed after this long."),
    ] = "5m",
    sends: Annotated[int, typer.Option(min=1, help="Give up after this many sends.")] = 10,
    keep: Annotated[
        str, typer.Option(metavar="DURATION", help="Remove what was done longer ago.")
    ] = "7d",
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Accept confirmations by HTTP at this address."),
    ] = None,
    http_token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The bearer token that HTTP callers must send."),
    ] = None,
    kafka: KafkaOptions,
    store: StoreOption,
) -> None:
    """Send the messages of the outbox until Ctrl-C or SIGTERM; one of several processes works."""
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
    given = kafka.given()
    try:
        # A producer and consumers run here; each takes the settings of its kind.
        of_producer = settings_of(given, "producer")
        settings = common_settings(given)
    except UnknownSetting as unknown:
        raise CliError(f"-X: {unknown}", exit_code=2) from None
    check_reachable(kafka.bootstrap)
    start_logging()
    stop = threading.Event()
    on_stop(stop.set)
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_cli_store(store, create=True))
        producer = stack.enter_context(Producer(of_producer, large=Large()))
        switches = stack.enter_context(Switches(settings))
        worker = Relay(opened, producer, switches, limits=limits)
        stack.callback(worker.close)
        if once:
            # After a step that found only held topics, the next one may find others.
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
        print(f"relaying to {kafka.bootstrap}{where}", flush=True)
        worker.run(stop)


def _http(store: Store, address: str, token_file: Path | None) -> ConfirmServer:
    from headrace.outbox.confirm_http import ConfirmServer

    host, port = split_address(address, "--http", default_port=HTTP_PORT)
    try:
        token = None if token_file is None else token_file.read_text().strip()
        return ConfirmServer(store, host, port, token=token)
    except (OSError, ValueError) as error:
        raise CliError(f"--http {address}: {error}", "use an address that is free") from None
