"""Dead letters: failed messages go to `SOURCE.dlq` and into the index, and back on request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.client.dead_letters import (
    ATTEMPTS_HEADER,
    ERROR_HEADER,
    FINGERPRINT_HEADER,
    HANDLER_HEADER,
    LEFT_OUT_HEADER,
    SOURCE_HEADER,
    TRACEBACK_HEADER,
    VERSION_HEADER,
    topic_of,
    without_ours,
)
from headrace.client.message import ID_HEADER, Message
from headrace.client.produce_errors import is_permanent
from headrace.store.fingerprints import Failure

if TYPE_CHECKING:
    from headrace.client.clock import Clock
    from headrace.client.producer import Producer
    from headrace.handlers.spec import HandlerSpec
    from headrace.large.large import Large
    from headrace.large.rows import LargeRows
    from headrace.store import Store
    from headrace.store.dead_letters import Letter
    from headrace.store.failed_messages import MessageSelection
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarms

# What is left out, step by step, of a letter that its topic refuses, most often for its size.
_CUTS: tuple[tuple[str, ...], ...] = (
    (),
    ("traceback",),
    ("traceback", "value"),
    ("traceback", "value", "key", "headers"),
)

# A letter this old that is not in its topic was left behind by a crash or an outage.
LATE_MS = 10_000
# A worker waits this long for the topic; the letter is already safe in the index.
SEND_SECONDS = 10.0
PAGE = 500

_log = logging.getLogger("headrace.dead_letters")


class DeadLetters:
    """The dead letters of one handler.

    With a store, a letter is first entered in the index, in the transaction that removes it from
    the retry table; then it is sent, then marked as sent. A crash between the steps is harmless:
    `send_late` sends the letter again with the same id. Without a store a letter is only in its
    topic, and a crash may send it twice.
    """

    def __init__(
        self,
        spec: HandlerSpec,
        store: Store | None,
        producer: Producer,
        clock: Clock,
        alarms: Alarms,
        large_rows: LargeRows | None = None,
    ) -> None:
        self._keep = unchanged if large_rows is None else large_rows.to_row
        self._open = unchanged if large_rows is None else large_rows.from_row
        self._spec = spec
        self._store = store
        self._producer = producer
        self._clock = clock
        self._alarms = alarms
        self._next_check_ms = 0
        self._topic_down_until_ms = 0

    def give_up(
        self,
        message: Message,
        failure: Failure,
        attempts: int,
        parked: ParkedMessage | None = None,
    ) -> None:
        """Make a message a dead letter and remove it from the retry table; durable on return.

        A handler with `dead_letters=False` drops the message, with an alarm.
        """
        if self._store is None:
            if self._spec.dead_letters:
                self._send(message, failure, attempts)
        else:
            self._enter(self._store, message, failure, attempts, parked)
        self._alarms.ring(
            "dead-letter" if self._spec.dead_letters else "message-dropped",
            f"{self._spec.name} gave up {message.source} after "
            f"{attempts} {'attempt' if attempts == 1 else 'attempts'}: {failure.error}",
            handler=self._spec.name,
            id=message.id,
            source=message.source,
            fingerprint=failure.fingerprint,
        )

    def send_late(self) -> int:
        """Send letters that a crash or an outage kept from their topic; returns how many."""
        now_ms = self._clock.monotonic_ms()
        if self._store is None or now_ms < self._next_check_ms:
            return 0
        self._next_check_ms = now_ms + LATE_MS
        before_ms = self._clock.now_ms() - LATE_MS
        late = self._store.dead_letters.unpublished(self._spec.name, before_ms, PAGE)
        for count, letter in enumerate(late):
            if not self._publish(self._store, letter):
                return count
        return len(late)

    def _enter(
        self,
        store: Store,
        message: Message,
        failure: Failure,
        attempts: int,
        parked: ParkedMessage | None,
    ) -> None:
        from headrace.store.dead_letters import NEW, Letter

        letter = Letter(
            self._spec.name,
            self._keep(message),
            attempts,
            failure,
            self._spec.version,
            NEW,
            self._clock.now_ms(),
            0,
        )
        with store.begin() as tx:
            if parked is not None:
                check_lease(store.retries.remove(tx, parked), message)
            if self._spec.dead_letters:
                store.dead_letters.put(tx, letter)
        # While the topic is unavailable, not every letter waits for it.
        if self._spec.dead_letters and self._clock.monotonic_ms() >= self._topic_down_until_ms:
            self._publish(store, letter)

    def _publish(self, store: Store, letter: Letter) -> bool:
        """Send a letter that is in the index; False if its topic takes no letter now."""
        from headrace.store.dead_letters import DEAD

        try:
            self._send(letter.message, letter.failure, letter.attempts)
            store.dead_letters.change([letter], DEAD)
        except Exception as problem:
            # The letter is safe in the index and is sent again later; the consumer must not fail.
            # A letter that its topic refuses does not hold up others.
            is_down = not is_permanent(problem)
            if is_down:
                self._topic_down_until_ms = self._clock.monotonic_ms() + LATE_MS
            self._alarms.ring(
                "dead-letter-unsent",
                f"{topic_of(letter.message.topic)} did not take {letter.message.source}: {problem}",
                handler=self._spec.name,
                id=letter.message.id,
            )
            return not is_down
        return True

    def _send(self, message: Message, failure: Failure, attempts: int) -> None:
        """Send the whole letter, or as much of it as its topic takes."""
        message = self._open(message)
        for cut in _CUTS:
            try:
                self._send_without(cut, message, failure, attempts)
            except Exception as refusal:
                if cut == _CUTS[-1] or not is_permanent(refusal):
                    raise
                _log.info("the letter of %s is shortened: %s", message.source, refusal)
            else:
                break
        if "value" in cut:
            whole = "the record itself" if self._store is None else "the index of dead letters"
            self._alarms.ring(
                "dead-letter-cut",
                f"{topic_of(message.topic)} took the letter of {message.source} only without "
                f"{', '.join(cut)}; {whole} has all of it",
                handler=self._spec.name,
                id=message.id,
                source=message.source,
            )

    def _send_without(
        self, cut: Sequence[str], message: Message, failure: Failure, attempts: int
    ) -> None:
        ours = {
            ID_HEADER: message.id,
            ERROR_HEADER: failure.error,
            FINGERPRINT_HEADER: failure.fingerprint,
            ATTEMPTS_HEADER: str(attempts),
            SOURCE_HEADER: message.source,
            HANDLER_HEADER: self._spec.name,
            VERSION_HEADER: self._spec.version,
        }
        ours |= {LEFT_OUT_HEADER: ", ".join(cut)} if cut else {TRACEBACK_HEADER: failure.traceback}
        headers = [] if "headers" in cut else without_ours(message.headers)
        headers += [(name, text.encode("utf-8", "replace")) for name, text in ours.items()]
        self._producer.send_and_wait(
            topic_of(message.topic),
            # Not None, which would delete the key from a compacted topic.
            b"" if "value" in cut else message.body,
            key=None if "key" in cut else message.key,
            headers=headers,
            timestamp_ms=message.timestamp_ms or None,
            timeout=SEND_SECONDS,
        )


def replay(
    store: Store, producer: Producer, chosen: MessageSelection, large: Large | None = None
) -> Iterator[Sequence[Letter]]:
    """Send the selected letters to their source topics again, with their ids, a page at a time.

    A letter is marked as replayed only once its topic has it. A crash repeats some with the same
    id, and an inbox handles each once.
    """
    from headrace.large.rows import LargeRows
    from headrace.store.dead_letters import REPLAYED

    large_rows = LargeRows(large, store)
    for page in store.dead_letters.pages(chosen, PAGE):
        sent = [_send_back(producer, large_rows.from_row(letter.message)) for letter in page]
        for wait in sent:
            wait()
        store.dead_letters.change(page, REPLAYED)
        yield page


def _send_back(producer: Producer, message: Message) -> Callable[[], object]:
    headers = resend_headers(message)
    return producer.send(message.topic, message.body, key=message.key, headers=headers).result


def resend_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a message that is sent to its own topic again: its sender's, and its id."""
    return [*without_ours(message.headers), (ID_HEADER, message.id.encode("utf-8", "replace"))]


def check_lease(is_ours: bool, message: Message) -> None:
    """Fenced if the row of a parked message was not ours any more; its transaction is undone."""
    # Imported late: a handler without a store needs no database library.
    from headrace.store import Fenced

    if not is_ours:
        raise Fenced(f"{message.source} has been taken over by another process")


def unchanged(message: Message) -> Message:
    """The message itself, for apps without large messages."""
    return message
