"""One node: server, dispatch, handlers, purgatory; `Broker` puts them together."""

from headrace.broker.broker import Broker

__all__ = ["Broker"]
