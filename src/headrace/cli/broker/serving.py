"""Running a broker in the foreground: options to settings, start, signals, stop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.common.errors import CliError
from headrace.config import BROKER_ROWS, ConfigError, Settings, environment

if TYPE_CHECKING:
    from headrace.broker import Broker


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `headrace up` and `headrace broker`."""

    listen: str | None = None
    data_dir: Path | None = None
    config: Path | None = None
    set: tuple[str, ...] = ()
    allow_insecure_listen: bool = False


def read_settings(options: ServeOptions) -> Settings:
    """Settings from the environment, the --config file, --set and the other options; last wins."""
    from headrace.cli.common.parsing import parse_pairs

    try:
        given = environment.broker_settings()
        if options.config is not None:
            from headrace.cli.common.parsing import read_properties

            given |= read_properties(options.config)
        given |= parse_pairs(options.set, "--set")
        if options.listen is not None:
            given["listeners"] = f"PLAINTEXT://{_checked_address(options.listen)}"
        if options.data_dir is not None:
            given.pop("log.dirs", None)
            given["log.dir"] = str(options.data_dir)
        elif not given.keys() & {"log.dirs", "log.dir"}:
            given["log.dir"] = str(environment.data_dir())
        if options.allow_insecure_listen:
            given["headrace.allow.insecure.listen"] = "true"
        return Settings.parse(BROKER_ROWS, given)
    except ConfigError as error:
        raise setting_error(error) from None


def setting_error(error: ConfigError) -> CliError:
    """The error of a wrong setting; the hint is the nearest name, or how to list them."""
    if error.name == "listeners":
        return CliError(f"cannot listen there: {error.reason}", "use --listen HOST:PORT", 2)
    hint = f"did you mean {error.nearest}?" if error.nearest else "headrace settings lists them all"
    return CliError(f"setting {error.name}: {error.reason}", hint, exit_code=2)


def _checked_address(text: str) -> str:
    from headrace.cli.common.parsing import split_address

    host, port = split_address(text, "--listen")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(
    options: ServeOptions,
    announce: Callable[[Broker, Settings], None],
    beside: Callable[[Broker, Settings], Coroutine[None, None, None]] | None = None,
) -> None:
    """Start a broker, announce it, and serve until SIGINT or SIGTERM; then drain and close.

    What runs `beside` it is started last, and cancelled before the broker closes.
    """
    settings = read_settings(options)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    raise_descriptor_limit()
    run_loop(_serve(settings, announce, beside or _nothing))


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit: connections and segments need one each."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS may refuse its own hard limit; then the soft one stays.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run_loop(main: Coroutine[None, None, None]) -> None:
    """Run a coroutine on uvloop if it is installed."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with contextlib.suppress(ImportError):
        from uvloop import new_event_loop as new_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


async def _nothing(_broker: Broker, _settings: Settings) -> None:
    pass


async def _serve(
    settings: Settings,
    announce: Callable[[Broker, Settings], None],
    beside: Callable[[Broker, Settings], Coroutine[None, None, None]],
) -> None:
    from headrace.broker import Broker

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop() -> None:
        # A second signal meets the default handler and ends a drain that takes too long.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    broker = Broker(settings)
    try:
        await broker.start()
    except (OSError, ConfigError) as error:
        raise start_error(error) from None
    try:
        if not stopping.is_set():
            announce(broker, settings)
        others = asyncio.ensure_future(beside(broker, settings))
        serving = asyncio.ensure_future(broker.serve_forever())
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        others.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await others
        serving.cancel()
        stopped.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await broker.close()


def address(broker: Broker) -> str:
    """HOST:PORT of a started broker, as a client would write it."""
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"{host}:{broker.port}"


def start_error(error: OSError | ConfigError) -> CliError:
    """The error of a broker that did not start."""
    if isinstance(error, ConfigError):
        return setting_error(error)
    reason = error.strerror or str(error)
    if error.filename:
        reason = f"{error.filename}: {reason}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return CliError(
            reason, "use a data folder (--data-dir) and a port (--listen) that you may use"
        )
    return CliError(reason, "change the data folder with --data-dir, the port with --listen")
