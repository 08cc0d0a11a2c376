"""Half messages tied to transactions of the store: their checker needs no code and cannot err.

Who joins first wins. The local transaction claims the id in the inbox; the checker, when asked,
claims it too. If it gets it, the local transaction has not committed and never can; if not, it
has. A transaction that is still open makes the checker wait for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.client.message import Message
from headrace.errors import HandlerError
from headrace.handlers.half import checkers
from headrace.ledger.half.headers import PREPARED_HEADER
from headrace.store.inbox import KEEP_MS

if TYPE_CHECKING:
    from headrace.handlers.app import App
    from headrace.handlers.context import AppContext
    from headrace.store import Store
    from headrace.store.transaction import Transaction

JOINED = "headrace-half"
GIVEN_UP = "headrace-half-given-up"
# The inbox forgets; what is older than this, a person has to decide.
KNOWN_MS = KEEP_MS // 2


class HalfGivenUp(HandlerError):
    """The service asked before the transaction joined, and was told that it never would."""


class _Happened(Exception):
    """The local transaction has committed, so the checker's own claim is undone."""


def join(store: Store, tx: Transaction, id: str) -> None:
    """Claim the id for the local transaction; HalfGivenUp if the checker has it."""
    if not store.inbox.claim(tx, JOINED, [id], tx.now_ms):
        raise HalfGivenUp(
            f"half message {id} was given up before its transaction joined it",
            "it took longer than the first check; prepare it with a longer check_after=",
        )


def register(app: App, group: str) -> None:
    """Make the store the checker of a producer group."""

    @checkers.register(app, group)
    def by_store(message: Message) -> bool | None:
        return has_committed(app.context, message)


def has_committed(context: AppContext, message: Message) -> bool | None:
    """Whether a transaction that joined the half message has committed; False is final."""
    prepared_ms = int(message.header(PREPARED_HEADER) or message.timestamp_ms)
    if context.clock.now_ms() - prepared_ms > KNOWN_MS:
        return None
    store = context.need_store("the store's checker")
    try:
        with store.begin() as tx:
            if not store.inbox.claim(tx, GIVEN_UP, [message.id], tx.now_ms):
                return False
            if not store.inbox.claim(tx, JOINED, [message.id], tx.now_ms):
                raise _Happened
    except _Happened:
        return True
    return False
