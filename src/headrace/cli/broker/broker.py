"""`headrace broker`: run one broker in the foreground, for scripts and services."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headrace.cli.broker.serving import ServeOptions, address, serve
from headrace.config import Settings, log_dirs

if TYPE_CHECKING:
    from headrace.broker import Broker


def run_broker(options: ServeOptions) -> None:
    """Serve until a signal; one ready line on standard output once clients may connect."""
    serve(options, _announce)


def _announce(broker: Broker, settings: Settings) -> None:
    data = ",".join(log_dirs(settings))
    print(f"ready {address(broker)} pid={os.getpid()} data={data}", flush=True)
