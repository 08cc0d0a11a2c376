"""A seeded world for the delay service: clients, instances that die and take over, and checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from confluent_kafka import KafkaError
from tests.ledger.instances import Brokers, Clock, Intake, StateOwner, Steps
from tests.ledger.kafka_model import Fenced, Kafka

from headrace.client.delayed import AT_HEADER, CANCEL_HEADER, TARGET_HEADER
from headrace.client.message import ID_HEADER
from headrace.ledger.delay.machine import CANCEL_KEPT_MS, DelayMachine
from headrace.ledger.topics import ServiceTopics

NAMES = ServiceTopics("delay")
TARGET = "orders"
BAD_TARGET = "nowhere"
# How the bad target shows itself: it is missing, takes no such records, or denies all.
BAD_WAYS = (None, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True)
class Sent:
    """A command as a client knows it."""

    number: int
    id: str
    partition: int
    at_ms: int
    due_ms: int | None
    target: str


class World:
    """One seed's story."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.kafka = Kafka()
        self.clock = Clock()
        self.brokers = Brokers()
        how = self.random.choice(BAD_WAYS)
        if how is None:
            self.brokers.missing.add(BAD_TARGET)
        else:
            self.brokers.refusals[BAD_TARGET] = how
        self.machine = DelayMachine()
        self.inputs = self.random.choice((1, 1, 2))
        self.states = self.random.choice((1, 2))
        self.sent: list[Sent] = []
        # When each message was seen by readers, in their order.
        self.delivered: list[tuple[int, int]] = []
        self._seen = {TARGET: 0, NAMES.dead_letters: 0}
        self.dead: list[int] = []
        self.steps = 0
        # The owners of now, and the work that they or older ones are in the middle of.
        self.owners: dict[tuple[str, int], Intake | StateOwner] = {}
        self.work: dict[Intake | StateOwner, Steps] = {}
        self.fenced = 0
        # Those that stand still for a while, as a process does that gets no time.
        self.stopped: set[Intake | StateOwner] = set()

    def run(self, moves: int) -> None:
        """Live through this many moves, then let all come to its end, and check."""
        chances: list[tuple[int, Callable[[], None]]] = [
            (8, self.send),
            (5, self.pass_time),
            (1, self.compact),
            (2, self.take_over),
            (20, self.begin),
            (60, self.step),
            (1, self.crash),
            (3, self.wake),
            (2, self.trouble),
        ]
        self.own_all()
        weights = [weight for weight, _ in chances]
        acts = [act for _, act in chances]
        for act in self.random.choices(acts, weights, k=moves):
            act()
            self.look()
        self.finish()
        self.check()

    def send(self) -> None:
        """A client schedules, reschedules or cancels."""
        number = len(self.sent)
        id = f"m{self.random.randrange(6)}"
        partition = self.random.randrange(self.inputs)
        headers: list[tuple[str, bytes | None]] = [(ID_HEADER, id.encode())]
        due_ms, target = None, TARGET
        if self.random.random() < 0.25:
            headers.append((CANCEL_HEADER, b""))
        else:
            far = self.random.choice((0, 50, 3_000, 60_000))
            due_ms = self.clock.now_ms + self.random.randrange(far + 1)
            target = BAD_TARGET if self.random.random() < 0.05 else TARGET
            headers.append((TARGET_HEADER, target.encode()))
            headers.append((AT_HEADER, str(due_ms).encode()))
        log = self.kafka.log(NAMES.input, partition)
        log.append(None, b"%d" % number, headers, self.clock.now_ms)
        self.sent.append(Sent(number, id, partition, self.clock.now_ms, due_ms, target))

    def trouble(self) -> None:
        """The target, or the topic of dead letters, takes nothing for a while, or does again."""
        topic = self.random.choice((TARGET, NAMES.dead_letters))
        if self.brokers.refusals.pop(topic, None) is None:
            self.brokers.refusals[topic] = KafkaError._MSG_TIMED_OUT

    def pass_time(self) -> None:
        passed_ms = self.random.choice((1, 30, 500, 5_000, 30_000))
        self.clock.now_ms += passed_ms
        self.brokers.now_s += passed_ms / 1000
        if self.random.random() < 0.05:
            self.clock.now_ms -= self.random.randrange(10_000)

    def compact(self) -> None:
        for (topic, _), log in self.kafka.logs.items():
            if topic == NAMES.state:
                log.compact()

    def take_over(self) -> None:
        """A partition gets a new owner; the old one may live on as a zombie, or not."""
        kind = self.random.choice((NAMES.input, NAMES.state))
        partition = self.random.randrange(self.inputs if kind == NAMES.input else self.states)
        self.own(kind, partition)

    def own_all(self) -> None:
        for partition in range(self.inputs):
            self.own(NAMES.input, partition)
        for partition in range(self.states):
            self.own(NAMES.state, partition)

    def own(self, kind: str, partition: int) -> None:
        args = (self.kafka, self.machine, self.clock, partition)
        self.owners[kind, partition] = (
            Intake(*args, self.states) if kind == NAMES.input else StateOwner(*args, self.brokers)
        )

    def begin(self) -> None:
        """An owner begins its next piece of work, if it is not in the middle of one."""
        if self.owners:
            owner = self.random.choice([*self.owners.values()])
            self.work.setdefault(owner, owner.run())

    def step(self) -> None:
        awake = [owner for owner in self.work if owner not in self.stopped]
        if awake:
            owner = self.random.choice(awake)
            try:
                next(self.work[owner])
                self.steps += 1
                if self.random.random() < 0.1:
                    self.stopped.add(owner)
            except StopIteration:
                del self.work[owner]
            except Fenced:
                self.fenced += 1
                del self.work[owner]

    def wake(self) -> None:
        self.stopped.clear()

    def crash(self) -> None:
        """All that is under way ends where it is; new owners come at once, or later."""
        self.work.clear()
        self.owners.clear()
        if self.random.random() < 0.7:
            self.own_all()

    def look(self) -> None:
        """Readers of the target and of the dead letters see what is new."""
        for topic, seen in self._seen.items():
            log = self.kafka.log(topic)
            for record in log.committed(seen):
                number = int(record.value or b"")
                if topic == TARGET:
                    self.delivered.append((number, record.at_ms))
                else:
                    self.dead.append(number)
            self._seen[topic] = max(seen, log.stable_end)

    def finish(self) -> None:
        """New owners of all, all time that is needed, and nothing that disturbs."""
        self.crash()
        self.own_all()
        for topic in (TARGET, NAMES.dead_letters):
            self.brokers.refusals.pop(topic, None)
        for pass_ms in (0, 200_000, 2_000, CANCEL_KEPT_MS + 1, 2_000, 2_000):
            self.clock.now_ms += pass_ms
            self.brokers.now_s += pass_ms / 1000
            for _ in range(2):
                for owner in self.owners.values():
                    while sum(1 for _ in owner.run()):
                        pass
            self.look()

    def check(self) -> None:
        """Early, twice, superseded, lost: none of these."""
        numbers = [number for number, _ in self.delivered] + self.dead
        assert len(set(numbers)) == len(numbers), "one message was delivered twice"
        for number, at_ms in self.delivered:
            due_ms = self.sent[number].due_ms
            assert due_ms is not None, "a cancel was delivered"
            assert at_ms >= due_ms, f"{self.sent[number]} was early, at {at_ms}"
        assert all(self.sent[number].target == BAD_TARGET for number in self.dead)
        for id in {sent.id for sent in self.sent}:
            commands = [sent for sent in self.sent if sent.id == id]
            mine = [number for number in numbers if self.sent[number].id == id]
            if len({sent.partition for sent in commands}) == 1:
                order = [n for n, _ in self.delivered if self.sent[n].id == id]
                assert order == sorted(order), f"{id}: an older message came after a newer one"
                last = commands[-1]
                if last.due_ms is not None:
                    assert last.number in mine, f"{last} was lost"
            elif all(sent.due_ms is not None for sent in commands):
                assert mine, f"all messages of {id} were lost"
        for (topic, _), log in self.kafka.logs.items():
            if topic == NAMES.state:
                log.compact()
                assert not log.records, "something is left in the state"
