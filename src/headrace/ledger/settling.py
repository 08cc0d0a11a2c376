"""What is done about a transaction that came to nothing: who is at fault waits, or is refused."""

from __future__ import annotations

from headrace.client.produce_errors import is_passing, is_record_fault, is_topic_fault
from headrace.ledger.book import Book, Plan
from headrace.ledger.targets import Targets
from headrace.ledger.topics import Names
from headrace.ledger.writer import Failed


def settle(book: Book, targets: Targets, plan: Plan, failed: Failed, names: Names) -> bool:
    """Put the plan back, all but those at fault; whether the partition is to rest for a while."""
    suspects: dict[int, str] = {}
    is_settled = False
    for topic, tag, error in failed.records:
        if topic == names.state:
            continue
        if topic != names.dead and is_record_fault(error):
            suspects[tag] = error.str()
        else:
            is_settled = True
            if is_topic_fault(error):
                targets.refuse(topic, error.str())
            else:
                targets.rest(topic)
    if suspects:
        book.suspect(plan, suspects)
        return False
    if is_settled:
        book.put_back(plan)
        return False
    if not is_passing(failed.cause):
        return not _find_out(book, targets, plan, failed)
    book.put_back(plan)
    return True


def _find_out(book: Book, targets: Targets, plan: Plan, failed: Failed) -> bool:
    """Nobody has said who is at fault; False if there is nobody left to suspect."""
    reason = failed.cause.str()
    topics = {outgoing.topic for outgoing in plan.sends}
    if is_topic_fault(failed.cause) and len(topics) == 1:
        targets.refuse(topics.pop(), reason)
        book.put_back(plan)
        return True
    can_part = len(plan.items) > 1 or (topics and not plan.letters)
    if not can_part:
        book.put_back(plan)
        return False
    book.suspect(plan, dict.fromkeys(range(len(plan.items)), reason))
    return True
