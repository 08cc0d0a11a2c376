"""Retry policies as data, and the pure decision on what follows a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import MissingId, UndecodablePayload
from headrace.timing.durations import duration_ms

# Delays in place stop growing here: a worker that waits does nothing else.
IN_PLACE_DELAY_MS_MAX = 30_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """Tries from the retry table: after `first`, then twice as long each time up to `most`.

    After `attempts` of them the message becomes a dead letter.
    """

    first: str | int = "1s"
    most: str | int = "10m"
    attempts: int = 8

    def __post_init__(self) -> None:
        if duration_ms(self.first) > duration_ms(self.most):
            raise ValueError(f"Backoff: first={self.first!r} is longer than most={self.most!r}")
        if self.attempts < 1:
            raise ValueError(f"Backoff: attempts={self.attempts} must be 1 or more")

    def delay_ms(self, nth: int) -> int:
        """The delay before try number `nth`, counted from 1."""
        return _doubled(duration_ms(self.first), nth, duration_ms(self.most))


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the message to the end of its own topic, up to `attempts` times; its order is lost."""

    attempts: int = 3

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"Resend: attempts={self.attempts} must be 1 or more")


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a failed message is tried again before it becomes a dead letter.

    `in_place` tries follow in the same worker, the first after `delay`, then twice as long each
    time; `then` says what comes next. Each delay is lengthened at random by up to the fraction
    `jitter`. An error in `never` makes a dead letter at once, one in `always` is retried until it
    succeeds, and `rules` gives an exception class a policy of its own; the class nearest to the
    error's decides.
    """

    in_place: int = 0
    delay: str | int = "100ms"
    jitter: float = 0.2
    then: Backoff | Resend | None = None
    never: tuple[type[BaseException], ...] = ()
    always: tuple[type[BaseException], ...] = ()
    rules: Mapping[type[BaseException], Retry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        duration_ms(self.delay)
        if self.in_place < 0:
            raise ValueError(f"Retry: in_place={self.in_place} must be 0 or more")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"Retry: jitter={self.jitter} must be a fraction from 0 to 1")

    @property
    def stages(self) -> tuple[Backoff | Resend, ...]:
        """Every `then` that some error may reach."""
        own = () if self.then is None else (self.then,)
        return own + tuple(stage for rule in self.rules.values() for stage in rule.stages)


@dataclass(frozen=True, slots=True)
class Again:
    """Try once more in place, after a delay."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Park:
    """Put it into the retry table and try it from there, after a delay."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class SendAgain:
    """Send it to the end of its own topic."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Give it up."""


Step = Again | Park | SendAgain | DeadLetter

NO_RETRY = Retry()


def next_step(retry: Retry | None, error: BaseException, attempt: int, chance: float) -> Step:
    """What follows failure number `attempt`, counted from 1; `chance` is from 0 up to 1."""
    policy, is_endless = _policy_for(retry or NO_RETRY, error)
    if policy is None:
        return DeadLetter()
    stretch = 1 + policy.jitter * chance
    tries = policy.in_place + 1
    then = policy.then
    # A re-sent message gets its tries in place on each arrival.
    nth_in_place = (attempt - 1) % tries + 1 if isinstance(then, Resend) else attempt
    if nth_in_place < tries or (is_endless and then is None):
        delay_ms = _doubled(duration_ms(policy.delay), nth_in_place, IN_PLACE_DELAY_MS_MAX)
        return Again(round(delay_ms * stretch))
    if isinstance(then, Backoff) and (is_endless or attempt - policy.in_place <= then.attempts):
        return Park(round(then.delay_ms(attempt - policy.in_place) * stretch))
    if isinstance(then, Resend) and (is_endless or attempt // tries <= then.attempts):
        return SendAgain()
    return DeadLetter()


def _policy_for(retry: Retry, error: BaseException) -> tuple[Retry | None, bool]:
    """The policy for this error (None: no retry helps), and whether it retries forever."""
    for kind in type(error).__mro__:
        if kind in retry.never or kind in (UndecodablePayload, MissingId):
            return None, False
        if kind in retry.always:
            return retry, True
        if kind in retry.rules:
            return _policy_for(retry.rules[kind], error)
    return retry, False


def _doubled(first_ms: int, nth: int, most_ms: int) -> int:
    # The exponent is bounded, for a message that fails for weeks.
    return int(min(first_ms * 2 ** min(nth - 1, 40), most_ms))
