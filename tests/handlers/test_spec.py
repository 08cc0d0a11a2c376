"""What may be said about a handler, and the errors for what may not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from headrace.client.message import Message
from headrace.client.payloads import decoder, encode
from headrace.errors import HandlerError, MissingId, UndecodablePayload
from headrace.handlers import App, Output, Retry
from headrace.handlers.spec import make_spec
from headrace.store import Transaction


class Order(msgspec.Struct):
    """A message by msgspec."""

    id: int


class Paid(pydantic.BaseModel):
    """A message by pydantic."""

    id: int


@dataclass
class Shipped:
    """A message as a dataclass."""

    id: int


class Opened(msgspec.Struct, tag="opened"):
    """One of two kinds of message in a topic."""

    id: int


class Closed(msgspec.Struct, tag="closed"):
    """The other."""

    id: int


def on_order(order: Order) -> None: ...


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        (bytes, b"\xff\x00", b"\xff\x00"),
        (str, "grün".encode(), "grün"),
        (Order, b'{"id":7}', Order(7)),
        (Paid, b'{"id":7}', Paid(id=7)),
        (Shipped, b'{"id":7}', Shipped(7)),
        (dict[str, int], b'{"id":7}', {"id": 7}),
        (Opened | Closed, b'{"type":"closed","id":7}', Closed(7)),
        (Order | None, None, None),
        (str | None, None, None),
        (bytes, None, None),
        (Any, b"x", b"x"),
    ],
)
def test_a_payload_becomes_what_the_annotation_says(
    kind: Any, payload: bytes | None, expected: object
) -> None:
    assert decoder(kind)(payload) == expected


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        (Order, b"junk", "is not Order"),
        (Order, b'{"id":"seven"}', r"Expected `int`, got `str`"),
        (Paid, b"{}", "is not Paid"),
        (Shipped, b"[]", "is not Shipped"),
        (Opened | Closed, b'{"type":"lost","id":7}', "Invalid value 'lost'"),
        (str, b"\xff", "not UTF-8"),
        (Order, None, "Order | None to get tombstones"),
    ],
)
def test_what_cannot_be_decoded_says_why(kind: Any, payload: bytes | None, words: str) -> None:
    with pytest.raises(UndecodablePayload, match=words.replace("|", r"\|")):
        decoder(kind)(payload)


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b"\xff", b"\xff"),
        ("grün", "grün".encode()),
        (None, None),
        (Order(7), b'{"id":7}'),
        (Paid(id=7), b'{"id":7}'),
        (Shipped(7), b'{"id":7}'),
        ({"id": 7}, b'{"id":7}'),
    ],
)
def test_a_value_becomes_bytes(value: object, payload: bytes | None) -> None:
    assert encode(value) == payload


def test_a_handler_that_takes_a_transaction_has_the_inbox_in_it() -> None:
    def bill(order: Order, tx: Transaction) -> None: ...

    spec = make_spec(bill, ["orders"], group="billing")
    assert (spec.name, spec.group) == ("billing.bill", "billing")
    assert (spec.delivery, spec.once, spec.roles) == ("exactly_once", "inbox", ("value", "tx"))


def test_parameters_may_come_in_any_order() -> None:
    def pay(message: Message, tx: Transaction, order: Order, note: str = "") -> None: ...

    assert make_spec(pay, ["orders"]).roles == ("message", "tx", "value")


def test_a_batch_handler_takes_lists() -> None:
    def pay(orders: list[Order], messages: list[Message]) -> None: ...

    spec = make_spec(pay, ["orders"], batch=10, linger="1s")
    assert spec.roles == ("value", "message")
    assert spec.linger_ms == 1000
    assert spec.decoder(b'{"id":7}') == Order(7)


def batch_of_one_order(order: Order) -> None: ...
def no_message(tx: Transaction) -> None: ...
def two_payloads(order: Order, other: Order) -> None: ...
def with_output(order: Order, out: Output) -> None: ...
def with_tx(order: Order, tx: Transaction) -> None: ...
async def async_order(order: Order) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (on_order, {"order": "keys"}, "order='keys' is unknown .hint: did you mean 'key'"),
        (on_order, {"delivery": "twice"}, "delivery='twice' is unknown"),
        (on_order, {"once": "maybe"}, "once='maybe' is unknown"),
        (
            on_order,
            {"once": "inbox", "delivery": "at_most_once"},
            "needs delivery='exactly_once', not",
        ),
        (on_order, {"once": "offsets", "order": "key"}, "needs order='partition'"),
        (on_order, {"once": "transaction", "order": "none"}, "needs order='partition'"),
        (on_order, {"pressure": "hope"}, "pressure='hope' is unknown"),
        (on_order, {"pressure": "spill"}, "cannot keep order='partition'"),
        (on_order, {"order": "latest", "batch": 5}, "a batch, so its payload must be a list"),
        (on_order, {"order": "latest", "delivery": "exactly_once"}, "once for many messages"),
        (on_order, {"delivery": "at_most_once", "retry": Retry(in_place=1)}, "cannot be retried"),
        (on_order, {"order": "none", "workers": (5, 2)}, "workers from 5 to 2 is not a range"),
        (on_order, {"order": "key", "lanes": 0}, "workers from 1 to 0 is not a range"),
        (on_order, {"id": "order-id"}, "id='order-id' is not a source of ids"),
        (on_order, {"buffer_messages": 0}, "the buffers 1 or more"),
        (batch_of_one_order, {"batch": 5}, "its payload must be a list"),
        (no_message, {}, "has no parameter for the message"),
        (two_payloads, {}, "two parameters for the value"),
        (with_output, {}, "use once='transaction'"),
        (with_tx, {"once": "transaction"}, "take an Output"),
        (async_order, {"pressure": "caller_runs"}, "has no thread"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
    function: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(HandlerError, match=words):
        make_spec(function, ["orders"], **options)


def test_a_duration_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'soon' is not a duration"):
        make_spec(on_order, ["orders"], drain="soon")


def test_a_handler_needs_a_topic_and_a_name_of_its_own() -> None:
    app = App("localhost:9092")
    with pytest.raises(HandlerError, match="has no topic"):
        app.handler()(on_order)
    app.handler("orders")(on_order)
    with pytest.raises(HandlerError, match="two handlers have the name 'on_order'"):
        app.handler("orders")(on_order)


def test_a_handler_with_a_transaction_needs_a_store() -> None:
    app = App("127.0.0.1:1")
    app.handler("orders")(with_tx)
    with pytest.raises(HandlerError, match=r"handler with_tx needs a store .*sqlite:///shop.db"):
        app.start()


def record(headers: list[tuple[str, bytes | None]]) -> Message:
    return Message("orders", 2, 7, b"k", b"v", headers)


def test_ids_come_from_where_the_handler_says() -> None:
    by_default = make_spec(on_order, ["orders"])
    assert by_default.identify(record([("headrace-id", b"a1")])).id == "a1"
    assert by_default.identify(record([])).id == "orders/2/7"
    by_place = make_spec(on_order, ["orders"], id="offset")
    assert by_place.identify(record([("headrace-id", b"a1")])).id == "orders/2/7"
    by_header = make_spec(on_order, ["orders"], id="header:order-id")
    assert by_header.identify(record([("order-id", b"1"), ("order-id", b"2")])).id == "2"
    by_function = make_spec(on_order, ["orders"], id=lambda message: str(message.key))
    assert by_function.identify(record([])).id == "b'k'"


def test_a_missing_id_header_is_named() -> None:
    spec = make_spec(on_order, ["orders"], id="header:order-id")
    with pytest.raises(MissingId, match="orders/2/7 has no header 'order-id'"):
        spec.identify(record([]))


def test_the_version_of_a_handler_follows_its_code() -> None:
    spec = make_spec(on_order, ["orders"])
    assert spec.version == make_spec(on_order, ["orders"]).version
    assert spec.version != make_spec(with_tx, ["orders"]).version
    assert make_spec(on_order, ["orders"], version="v2").version == "v2"


def test_two_handlers_of_one_topic_in_one_group_are_refused_with_both_ways_out() -> None:
    app = App("127.0.0.1:1")
    app.handler("orders", "refunds", group="billing", name="bill")(lambda order: None)
    with pytest.raises(HandlerError) as refusal:
        app.handler("refunds", group="billing", name="refund")(lambda order: None)
    assert "bill and refund both read 'refunds' in group 'billing'" in str(refusal.value)
    assert 'another group="..."' in refusal.value.hint
    assert "one handler" in refusal.value.hint
    # Another group gets all messages too, and another topic of the same group is no conflict.
    app.handler("refunds", group="books", name="book")(lambda order: None)
    app.handler("returns", group="billing", name="refund")(lambda order: None)
    assert len(app.handlers) == 3
