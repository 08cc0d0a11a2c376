"""Half messages under crashes between any two steps: one seed, one story, and what must hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.ledger.half.world import GROUP, LIMITS, TARGET, Pairs, command
from tests.ledger.instances import Clock, Intake, StateOwner, Steps
from tests.ledger.kafka_model import Fenced, Kafka, Record

from headrace.client.message import ID_HEADER, find_header
from headrace.ledger.entries import EntryCache
from headrace.ledger.half.commands import CHECK_PREFIX
from headrace.ledger.half.machine import HalfMachine, state_of
from headrace.ledger.half.states import State
from headrace.ledger.machine import LedgerEntry, LedgerMachine
from headrace.ledger.records import INTAKE_WRITER, read_key, read_value
from headrace.ledger.state_partition import PlannedTransaction, StatePartition
from headrace.ledger.topics import ServiceTopics
from headrace.telemetry.alarms import NamedAlarm

NAMES = ServiceTopics("half")
INTAKE_WRITERS = "nobody"
HALVES = 6

_SAID = {State.EARLY_COMMIT: True, State.EARLY_ROLLBACK: False}


@dataclass
class Sender:
    """One half message in its sender's process: what it will say, and what is true."""

    id: str
    outcome: bool
    lines: list[str]
    group: str = GROUP
    is_honest: bool = True
    # What became of the local transaction; None while it runs.
    truth: bool | None = None

    def next_line(self) -> str | None:
        """What it says next; "local" is the end of the local transaction."""
        if self.lines and self.lines[0] == "local":
            self.lines.pop(0)
            self.truth = self.outcome
        return self.lines.pop(0) if self.lines else None


def make_sender(number: int, random: Random) -> Sender:
    """A sender with faults of its own."""
    outcome = random.random() < 0.6
    decision, opposite = ("commit", "rollback") if outcome else ("rollback", "commit")
    sender = Sender(f"h{number}", outcome, ["prepare", "local", decision])
    match random.choice(["plain", "plain", "dies", "dies", "repeats", "lies", "nobody", "late"]):
        case "dies":
            sender.lines = ["prepare", "local"]
        case "repeats":
            sender.lines = ["prepare", "prepare", "local", decision, "prepare", decision]
        case "lies":
            sender.lines.append(opposite)
            sender.is_honest = False
        case "nobody":
            # It dies, and so does all its group.
            sender.lines, sender.group = ["prepare", "local"], INTAKE_WRITERS
        case "late":
            # Its prepare is slow on the way, and the decision overtakes it.
            sender.lines = ["local", decision, "prepare"]
    return sender


class Story:
    """One seed."""

    def __init__(self, seed: int, machine: LedgerMachine | None = None) -> None:
        self.random = Random(seed)
        self.kafka = Kafka()
        self.clock = Clock()
        self.machine = machine or HalfMachine(LIMITS)
        self.inputs = self.random.choice((1, 2, 2))
        self.states = self.random.choice((1, 1, 2))
        self.senders = [make_sender(number, self.random) for number in range(HALVES)]
        self.by_id = {sender.id: sender for sender in self.senders}
        self.steps = self.fenced = 0
        # What was said of each id, in the order of the state topic; what readers saw.
        self.said: dict[str, list[LedgerEntry]] = {sender.id: [] for sender in self.senders}
        self.seen: list[str] = []
        self.alarms: list[tuple[str, str]] = []
        self._looked: dict[tuple[str, int], int] = {}
        self._owners: dict[tuple[str, int], Intake | StateOwner] = {}
        self._work: dict[Intake | StateOwner, Steps] = {}
        self._stopped: set[Intake | StateOwner] = set()

    def run(self, moves: int) -> None:
        """Live through this many moves, then let all come to its end, and check."""
        chances: list[tuple[int, Callable[[], None]]] = [
            (10, self.speak),
            (5, self.pass_time),
            (4, self.answer),
            (1, self.compact),
            (2, self.take_over),
            (25, self.begin),
            (70, self.step),
            (1, self.crash),
            (3, self.wake),
        ]
        self.own_all()
        weights = [weight for weight, _ in chances]
        for act in self.random.choices([act for _, act in chances], weights, k=moves):
            act()
        self.finish()
        self.check()

    def speak(self, sender: Sender | None = None) -> None:
        sender = sender or self.random.choice(self.senders)
        line = sender.next_line()
        if line == "prepare":
            headers = command(line, sender.id, target=TARGET, group=sender.group)
            self.write(headers, sender.id.encode())
        elif line is not None:
            self.write(command(line, sender.id), b"")

    def write(self, headers: Pairs, value: bytes) -> None:
        log = self.kafka.log(NAMES.input, self.random.randrange(self.inputs))
        log.append(b"key", value, headers, self.clock.now_ms)

    def answer(self) -> None:
        """A member of the group answers some of what it was asked, or dies over it."""
        for id in self.new_ids(CHECK_PREFIX + GROUP):
            truth = self.by_id[id].truth
            if truth is not None and self.random.random() < 0.7:
                self.write(command("commit" if truth else "rollback", id), b"")

    def pass_time(self) -> None:
        self.clock.now_ms += self.random.choice((1, 1_000, 6_000, 31_000))

    def compact(self) -> None:
        for (topic, _), log in self.kafka.logs.items():
            if topic == NAMES.state:
                log.compact()

    def take_over(self) -> None:
        """A partition gets a new owner; the old one may live on as a zombie."""
        self.own(*self.random.choice([*self._places()]))

    def own_all(self) -> None:
        for kind, partition in self._places():
            self.own(kind, partition)

    def own(self, kind: str, partition: int) -> None:
        if kind == NAMES.input:
            args = (self.kafka, self.machine, self.clock, partition)
            self._owners[kind, partition] = Intake(*args, self.states)
            return
        owner = StateOwner(self.kafka, self.machine, self.clock, partition)
        done = owner.state.committed

        def ring(plan: PlannedTransaction) -> list[NamedAlarm]:
            rung = done(plan)
            self.alarms += rung
            return rung

        owner.state.committed = ring  # type: ignore[method-assign]
        self._owners[kind, partition] = owner

    def begin(self) -> None:
        """An owner begins its next piece of work, if it is not in the middle of one."""
        if self._owners:
            owner = self.random.choice([*self._owners.values()])
            self._work.setdefault(owner, owner.run())

    def step(self) -> None:
        awake = [owner for owner in self._work if owner not in self._stopped]
        if not awake:
            return
        owner = self.random.choice(awake)
        try:
            next(self._work[owner])
            self.look()
            self.steps += 1
            if self.random.random() < 0.1:
                self._stopped.add(owner)
        except StopIteration:
            del self._work[owner]
        except Fenced:
            self.fenced += 1
            del self._work[owner]

    def wake(self) -> None:
        self._stopped.clear()

    def crash(self) -> None:
        """All that is under way ends where it is; new owners come at once, or later."""
        self._work.clear()
        self._owners.clear()
        if self.random.random() < 0.7:
            self.own_all()

    def look(self) -> None:
        """Note what the state topic says; readers of the target see only what it allows."""
        for partition in range(self.states):
            for record in self.new_records(NAMES.state, partition):
                if record.value is not None:
                    id, place = read_key(record.key or b"")
                    entry, writer = read_value(id, place, record.value)
                    if writer == INTAKE_WRITER:
                        self.said[id].append(entry)
        for id in self.new_ids(TARGET):
            assert self.first_decision(id), f"half-visible: {id}"
            self.seen.append(id)

    def new_ids(self, topic: str) -> list[str]:
        found = [find_header(r.headers, ID_HEADER) or b"" for r in self.new_records(topic)]
        return [id.decode() for id in found]

    def new_records(self, topic: str, partition: int = 0) -> list[Record]:
        log = self.kafka.log(topic, partition)
        records = [*log.committed(self._looked.get((topic, partition), 0))]
        self._looked[topic, partition] = log.stable_end
        return records

    def finish(self) -> None:
        """New owners of all, senders that finish or are dead, members that answer."""
        self.crash()
        self.own_all()
        for sender in self.senders:
            while sender.lines:
                self.speak(sender)
        self.settle()
        # All checks, the parking, and one time more.
        for _ in range(LIMITS.checks_max + 2):
            self.clock.now_ms += LIMITS.check_every_ms + 1
            self.settle()
            self.answer()
        self.settle()

    def settle(self) -> None:
        for _ in range(2):
            for owner in self._owners.values():
                while sum(1 for _ in owner.run()):
                    pass
        self.look()

    def first_decision(self, id: str) -> bool | None:
        """The one that counts."""
        return next((_SAID[s] for e in self.said[id] if (s := state_of(e)) in _SAID), None)

    def check(self) -> None:
        """Visible too soon, orphaned, twice, against the truth: none of these."""
        states = self.known_states()
        torn = {text.split(" ")[0] for name, text in self.alarms if name == "half-contradiction"}
        for sender in self.senders:
            id, first, state = sender.id, self.first_decision(sender.id), states.get(sender.id)
            assert self.seen.count(id) == (first is True), f"{id} was seen {self.seen}"
            if first is None:
                open_states = (State.WAITING, State.PARKED)
                assert state in open_states, f"half-orphan: {id} is {state}"
                assert state == State.PARKED or sender.group == GROUP, f"{id} is {state}"
            else:
                assert state == (State.COMMITTED if first else State.ROLLED_BACK), f"{id}: {state}"
                assert not sender.is_honest or first is sender.truth, f"{id} is not the truth"
            said = {kind for entry in self.said[id] if (kind := state_of(entry)) in _SAID}
            assert id not in torn or len(said) == 2, f"a false alarm about {id}"

    def known_states(self) -> dict[str, State]:
        """What a fresh reader of the state topic finds."""
        found = {}
        for partition in range(self.states):
            cache = EntryCache()
            state = StatePartition(self.machine, cache, 1 << 40, self.clock.now_ms)
            log = self.kafka.log(NAMES.state, partition)
            state.apply((record.key or b"", record.value) for record in log.committed())
            found.update({entry.id: state_of(entry) for entry in cache.all()})
            cache.close()
        return found

    def _places(self) -> list[tuple[str, int]]:
        counts = ((NAMES.input, self.inputs), (NAMES.state, self.states))
        return [(kind, number) for kind, count in counts for number in range(count)]
