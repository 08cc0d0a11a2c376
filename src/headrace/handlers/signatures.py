"""The roles of a handler's parameters: payload, message, transaction, output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from headrace.client.message import Message
from headrace.errors import HandlerError

Role = Literal["value", "message", "tx", "out"]

# By name, so that a handler without them loads neither the store nor the producer.
_BY_CLASS_NAME: dict[str, Role] = {"Transaction": "tx", "Output": "out"}


@dataclass(frozen=True, slots=True)
class Signature:
    """The roles of the parameters in their order, and the payload's type."""

    roles: tuple[Role, ...]
    kind: Any
    is_async: bool


def read_signature(function: Callable[..., Any], batch: bool) -> Signature:
    """Read a handler's annotations; HandlerError if it cannot be called with a message."""
    name = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except NameError as error:
        raise HandlerError(
            f"an annotation of handler {name} cannot be read: {error}",
            "import the type at run time and define it before the handler, in its module",
        ) from None
    roles: list[Role] = []
    kind: Any = Any
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY
        ):  # fmt: skip
            continue
        hint = hints.get(parameter.name, Any)
        role = _role(parameter.name, hint, batch)
        if role in roles:
            raise HandlerError(
                f"handler {name} has two parameters for the {role}",
                "a handler takes the payload, and may take Message, Transaction and Output",
            )
        if role == "value":
            kind = _element(hint, name) if batch else hint
        roles.append(role)
    if "value" not in roles and "message" not in roles:
        raise HandlerError(f"handler {name} has no parameter for the message", "give it one")
    return Signature(tuple(roles), kind, inspect.iscoroutinefunction(function))


def _role(name: str, hint: Any, batch: bool) -> Role:
    if hint is Message or (batch and get_args(hint) == (Message,)):
        return "message"
    by_class = _BY_CLASS_NAME.get(getattr(hint, "__name__", ""))
    if by_class is not None and hint.__module__.startswith("headrace."):
        return by_class
    return "tx" if hint is Any and name == "tx" else "value"


def _element(hint: Any, name: str) -> Any:
    if hint is Any or hint is list:
        return Any
    if get_origin(hint) is not list:
        raise HandlerError(
            f"handler {name} takes a batch, so its payload must be a list, not {hint!r}",
            "annotate it with list[Order]",
        )
    return get_args(hint)[0]
