"""Dead letters: what was given up goes to `SOURCE.dlq` and into the index, and back on request."""

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
    from headrace.store.failed_messages import Selection
    from headrace.store.retries import ParkedMessage
    from headrace.telemetry.alarms import Alarms

# What is left out of a letter that its topic refuses for good, most often for its size: as little
# as will do.
_CUTS: tuple[tuple[str, ...], ...] = (
    (),
    ("traceback",),
    ("traceback", "value"),
    ("traceback", "value", "key", "headers"),
)

# A letter this old and not yet in its topic was left behind by a crash or an outage.
LATE_MS = 10_000
# A handler's worker waits no longer for the topic; the letter is safe already.
SEND_SECONDS = 10.0
PAGE = 500

_log = logging.getLogger("headrace.dead_letters")


class DeadLetters:
    """The dead letters of one handler.

    With a store, a letter is entered in the index first, in the transaction that takes it out of
    the retry table, then sent, then marked as sent. So a message is a dead letter from one moment
    on, whatever crashes; a letter between the steps is sent again by `send_late`, with the same
    id. Without a store the topic is the only place, and a crash may send a letter twice.
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
        self._keep = as_it_is if large_rows is None else large_rows.to_row
        self._open = as_it_is if large_rows is None else large_rows.from_row
        self._spec = spec
        self._store = store
        self._producer = producer
        self._clock = clock
        self._alarms = alarms
        self._next_look_ms = 0
        self._topic_away_until_ms = 0

    def bury(
        self,
        message: Message,
        failure: Failure,
        attempts: int,
        parked: ParkedMessage | None = None,
    ) -> None:
        """Make it a dead letter, out of the retry table if it was there; durable on return.

        A handler that wants no dead letters loses the message, with an alarm.
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
        """Send the letters that a crash or an outage kept from their topic; how many it were."""
        now_ms = self._clock.monotonic_ms()
        if self._store is None or now_ms < self._next_look_ms:
            return 0
        self._next_look_ms = now_ms + LATE_MS
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
        from headrace.store import Fenced
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
            if parked is not None and not store.retries.remove(tx, parked):
                raise Fenced(f"{message.source} has been taken over by another process")
            if self._spec.dead_letters:
                store.dead_letters.put(tx, letter)
        # While the topic is away, not every letter has to find out for itself.
        if self._spec.dead_letters and self._clock.monotonic_ms() >= self._topic_away_until_ms:
            self._publish(store, letter)

    def _publish(self, store: Store, letter: Letter) -> bool:
        """Send a letter that is in the index; False: its topic takes none at all now."""
        from headrace.store.dead_letters import DEAD

        try:
            self._send(letter.message, letter.failure, letter.attempts)
            store.dead_letters.change([letter], DEAD)
        except Exception as problem:
            # The letter is safe in the index and is tried again; the consumer must live. What is
            # wrong with one letter keeps no other from its topic.
            is_away = not is_permanent(problem)
            if is_away:
                self._topic_away_until_ms = self._clock.monotonic_ms() + LATE_MS
            self._alarms.ring(
                "dead-letter-unsent",
                f"{topic_of(letter.message.topic)} did not take {letter.message.source}: {problem}",
                handler=self._spec.name,
                id=letter.message.id,
            )
            return not is_away
        return True

    def _send(self, message: Message, failure: Failure, attempts: int) -> None:
        """Send the letter whole, or as much of it as its topic takes."""
        message = self._open(message)
        for cut in _CUTS:
            try:
                self._send_without(cut, message, failure, attempts)
            except Exception as refusal:
                if cut == _CUTS[-1] or not is_permanent(refusal):
                    raise
                _log.info("the letter of %s is cut: %s", message.source, refusal)
            else:
                break
        if "value" in cut:
            whole = "the record itself" if self._store is None else "the index of dead letters"
            self._alarms.ring(
                "dead-letter-cut",
                f"{topic_of(message.topic)} takes the letter of {message.source} only without "
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
            # Not None, which would delete what a compacted topic has of the key.
            b"" if "value" in cut else message.body,
            key=None if "key" in cut else message.key,
            headers=headers,
            timestamp_ms=message.timestamp_ms or None,
            timeout=SEND_SECONDS,
        )


def replay(
    store: Store, producer: Producer, chosen: Selection, large: Large | None = None
) -> Iterator[Sequence[Letter]]:
    """Send the chosen letters to their source topics again, with their ids, a page at a time.

    A letter counts as replayed only once its topic has it: a crash repeats some with the same id,
    and an inbox handles each once.
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
    headers = [*without_ours(message.headers), (ID_HEADER, message.id.encode("utf-8", "replace"))]
    return producer.send(message.topic, message.body, key=message.key, headers=headers).result


def as_it_is(message: Message) -> Message:
    """The message itself, where there are no large ones."""
    return message
