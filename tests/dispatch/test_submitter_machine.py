"""The submitter side: no job is forgotten, none is sent twice at a time."""

from __future__ import annotations

from headrace.dispatch.effects import ChangeToken, Send
from headrace.dispatch.submitter_machine import SubmitterMachine
from headrace.dispatch.tokens.store import Fence, Return, Token


def token(number: int) -> Token:
    return Token(number, Fence(1, 0))


def test_tokens_send_the_oldest_jobs() -> None:
    sender = SubmitterMachine()
    sender.submitted(["a", "b", "c"])
    assert sender.want == 3
    assert sender.granted([token(0), token(1)]) == [Send("a", token(0)), Send("b", token(1))]
    assert (sender.want, len(sender)) == (1, 3)


def test_a_token_without_a_job_goes_back() -> None:
    assert SubmitterMachine().granted([token(3)]) == [ChangeToken(Return(3, Fence(1, 0)))]


def test_a_refused_job_is_the_next_to_be_sent() -> None:
    sender = SubmitterMachine()
    sender.submitted(["a", "b"])
    sender.granted([token(0)])
    assert not sender.outcome("a", "refused", token(0))
    assert sender.granted([token(1)]) == [Send("a", token(1))]


def test_a_refusal_of_an_earlier_sending_is_old_news() -> None:
    sender = SubmitterMachine()
    sender.submitted(["a"])
    for number in range(2):
        sender.granted([token(number)])
        sender.outcome("a", "refused", token(0))
    assert sender.want == 0


def test_a_job_finishes_once_wherever_it_is() -> None:
    sender = SubmitterMachine()
    sender.submitted(["sent", "waiting"])
    sender.granted([token(0)])
    assert sender.outcome("sent", "done", token(0))
    assert sender.outcome("waiting", "failed", None)
    assert not sender.outcome("sent", "done", token(0))
    assert (sender.want, len(sender)) == (0, 0)
    assert sender.granted([token(1)]) == [ChangeToken(Return(1, Fence(1, 0)))]


def test_a_failed_sending_returns_the_token_only_if_surely_nothing_arrived() -> None:
    sender = SubmitterMachine()
    sender.submitted(["a"])
    sender.granted([token(0)])
    assert sender.failed(token(0), surely=False) == []
    # It waits again only after a pause.
    assert sender.want == 0
    sender.again("a", token(0))
    sender.granted([token(1)])
    assert sender.failed(token(1), surely=True) == [ChangeToken(Return(1, Fence(1, 0)))]
    sender.again("a", token(0))
    assert sender.want == 0
    sender.again("a", token(1))
    assert sender.want == 1


def test_a_job_that_was_passed_over_waits_again() -> None:
    sender = SubmitterMachine()
    sender.submitted(["a"])
    sender.lost("a")
    sender.granted([token(0)])
    sender.lost("a")
    assert sender.want == 1
    sender.lost("unknown")
    assert len(sender) == 1
