"""Runs a handler's function on messages: one at a time, or many in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.message import CONFIRM_HEADER, Message, find_header
from headrace.errors import Unavailable
from headrace.handlers.lanes import Item
from headrace.protocol.partitions import TopicPartition

if TYPE_CHECKING:
    from headrace.handlers.context import AppContext
    from headrace.handlers.spec import HandlerSpec
    from headrace.store import Transaction

# How many messages of a chunk are done, and the error of the one after them, if any.
Reached = tuple[int, BaseException | None]
# Something that belongs in the transaction of the effect.
InTransaction = Callable[["Transaction"], None]
# Whether this process still has the partitions of the messages.
IsOpen = Callable[[], bool]


class Position(NamedTuple):
    """Where a partition is after some messages: its next offset, and where they began."""

    next_offset: int
    epoch: int
    first: int


Positions = Mapping[TopicPartition, Position]


class Revoked(Unavailable):
    """A partition was taken away before its messages were run: its next owner runs them."""

    def __init__(self) -> None:
        super().__init__("the partition was taken away")


class Execution:
    """Runs one handler; safe from many threads."""

    def __init__(self, spec: HandlerSpec, context: AppContext) -> None:
        self.spec = spec
        self._context = context
        self._store = context.store
        if (
            "tx" in spec.roles
            or spec.once == "offsets"
            or (spec.once == "inbox" and not context.own_inbox)
        ):
            context.need_store(f"handler {spec.name}")
        self._inbox = context.inbox if spec.once == "inbox" else None
        self._decode = spec.decoder
        self._by_key = spec.order == "latest"
        self._wants_value = "value" in spec.roles
        self._call = _caller(spec, context)
        # The handler takes nothing but the payload, so no Message is made.
        self.is_plain = spec.roles == ("value",) and not (self._by_key or spec.once)

    def execute_one(self, message: Message, also: InTransaction | None = None) -> None:
        """Run the handler on one message, with its inbox row and `also` in its transaction.

        For a handler without a transaction, `also` runs after it in one of its own. Raises what
        the handler raised. A message that the inbox knows is not run again, but `also` is.
        """
        self.run_messages([message], also)

    def message(self, item: Item, attempt: int = 1) -> Message:
        """The message of an item, with the id that its handler uses."""
        return self.spec.identify(Message.from_record(item[2], attempt))

    def run_plain(self, chunk: Sequence[Item], start: int, deadline_ns: int) -> Reached:
        """Run payloads one by one from `start` on, until the end, an error or the deadline."""
        call = self.spec.function
        decode = self._decode
        index = start
        asking: list[Message] = []
        reached: Reached = (len(chunk), None)
        try:
            for index in range(start, len(chunk)):
                lane, _, record = chunk[index]
                if not lane.track.open:
                    reached = index, None
                    break
                call(decode(record.value()))
                headers = record.headers()
                if headers and find_header(headers, CONFIRM_HEADER) is not None:
                    asking.append(Message.from_record(record))
                if monotonic_ns() > deadline_ns:
                    reached = index + 1, None
                    break
        except BaseException as error:
            reached = index, error
        if asking:
            self.confirm(asking)
        return reached

    def payloads(self, chunk: Sequence[Item], start: int) -> tuple[list[Any], BaseException | None]:
        """The payloads from `start` on, up to the first that cannot be decoded, and its error."""
        decode = self._decode
        values: list[Any] = []
        try:
            for item in chunk[start:] if start else chunk:
                values.append(decode(item[2].value()))  # noqa: PERF401
        except BaseException as error:
            return values, error
        return values, None

    def confirm_items(self, items: Sequence[Item]) -> None:
        """Confirm the items whose sender asked for it."""
        asking = [
            Message.from_record(record)
            for _, _, record in items
            if (headers := record.headers()) and find_header(headers, CONFIRM_HEADER) is not None
        ]
        if asking:
            self.confirm(asking)

    def call_batch(self, values: list[Any]) -> None:
        """Call a handler that takes nothing but a list of payloads."""
        self._call(values, None, None)

    def run_messages(
        self,
        messages: Sequence[Message],
        also: InTransaction | None = None,
        positions: Positions | None = None,
    ) -> None:
        """Run messages in one transaction (if the handler has one); all or none has an effect."""
        values = [self.payload(message) for message in messages]
        if self.spec.once == "offsets" and positions:
            self._run_with_positions(messages, values, also, positions)
        elif self.spec.wants_tx:
            self._run_in_transaction(messages, values, also, None)
        else:
            self.call_all(messages, values, None)
            if also is not None:
                with self._context.need_store("a retry").begin() as tx:
                    also(tx)
        self.confirm(messages)

    def payload(self, message: Message) -> Any:
        """The payload for the handler; not decoded if it takes none."""
        if not self._wants_value:
            return None
        return self._decode(message.key if self._by_key else message.value)

    def call_all(self, messages: Sequence[Message], values: Sequence[Any], scope: Any) -> None:
        """Call the function for each message, or once for a batch; `scope` is its tx or output."""
        call = self._call
        if self.spec.batch:
            if messages:
                call(list(values), list(messages), scope)
            return
        for value, message in zip(values, messages, strict=True):
            call(value, message, scope)

    def confirm(self, messages: Sequence[Message]) -> None:
        """Confirm the messages whose sender asked for it."""
        confirm = self._context.confirm
        if confirm is None:
            return
        asking = [m for m in messages if m.headers and m.header(CONFIRM_HEADER) is not None]
        if asking:
            confirm(self.spec.group, asking)

    def _run_with_positions(
        self,
        messages: Sequence[Message],
        values: Sequence[Any],
        also: InTransaction | None,
        positions: Positions,
    ) -> None:
        """Run what is not saved yet: a COMMIT whose answer was lost may have succeeded."""
        from headrace.store.offsets import AlreadySaved

        while True:
            try:
                return self._run_in_transaction(messages, values, also, positions)
            except AlreadySaved as saved:
                # What ran just now was rolled back.
                place, start = saved.place, saved.next_offset
                end, epoch, _ = positions[place]
                positions = {**positions, place: Position(max(end, start), epoch, start)}
                left = [
                    (message, value)
                    for message, value in zip(messages, values, strict=True)
                    if (message.topic, message.partition) != place or message.offset >= start
                ]
                messages = [message for message, _ in left]
                values = [value for _, value in left]

    def _run_in_transaction(
        self,
        messages: Sequence[Message],
        values: Sequence[Any],
        also: InTransaction | None,
        positions: Positions | None,
    ) -> None:
        name = self.spec.name
        inbox = self._inbox
        ids = [message.id for message in messages]
        try:
            with self._begin() as tx:
                if inbox is not None:
                    fresh = inbox.claim(tx, name, ids, self._context.clock.now_ms())
                    if len(fresh) < len(ids):
                        messages, values = _only(fresh, messages, values)
                self.call_all(messages, values, tx)
                if also is not None:
                    also(tx)
                if positions:
                    self._save(tx, positions)
        except BaseException:
            if inbox is not None:
                inbox.release(name, ids)
            raise
        if inbox is not None:
            inbox.done(name, ids)

    def _begin(self) -> AbstractContextManager[Any]:
        # With an inbox elsewhere and no store, there is no transaction.
        return nullcontext() if self._store is None else self._store.begin()

    def _save(self, tx: Transaction, positions: Positions) -> None:
        from headrace.store.offsets import StoredOffset

        assert self._store is not None
        places = {partition: StoredOffset(*position) for partition, position in positions.items()}
        self._store.offsets.save(tx, self.spec.group, places)


def _only(
    fresh: set[str], messages: Sequence[Message], values: Sequence[Any]
) -> tuple[list[Message], list[Any]]:
    """The messages whose id is new; of two with the same id, the first."""
    left = set(fresh)
    chosen: list[Message] = []
    kept: list[Any] = []
    for message, value in zip(messages, values, strict=True):
        if message.id in left:
            left.discard(message.id)
            chosen.append(message)
            kept.append(value)
    return chosen, kept


def _caller(spec: HandlerSpec, context: AppContext) -> Callable[[Any, Any, Any], Any]:
    """The handler as a function of payload, message, and tx or output."""
    function = spec.function
    if spec.is_async:
        run = context.loop.run
        return lambda value, message, scope: run(function(*arguments(spec, value, message, scope)))
    if spec.roles == ("value",):
        return lambda value, _message, _scope: function(value)
    if spec.roles == ("value", "tx"):
        return lambda value, _message, scope: function(value, scope)
    return lambda value, message, scope: function(*arguments(spec, value, message, scope))


def arguments(spec: HandlerSpec, value: Any, message: Any, scope: Any) -> list[Any]:
    """The arguments in the order of the handler's parameters."""
    by_role = {"value": value, "message": message, "tx": scope, "out": scope}
    return [by_role[role] for role in spec.roles]
