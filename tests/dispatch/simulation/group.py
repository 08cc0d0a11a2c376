"""A consumer group: the owner of each partition, its generation and its committed offset."""

from __future__ import annotations

from typing import Protocol

from tests.dispatch.simulation.world import Violation, World

SESSION_MS = 400


class Member(Protocol):
    """What the group sees of a node."""

    name: str
    is_alive: bool
    is_frozen: bool
    generation: int

    def assign(self, partition: int, epoch: int, next_offset: int) -> None: ...
    def revoke(self, partition: int) -> None: ...


class Group:
    """The coordinator, whose rounds wait for all nodes that are alive."""

    def __init__(self, world: World, *, is_eager: bool) -> None:
        self.world = world
        self.is_eager = is_eager
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.owners: dict[int, str] = {}
        # The generation in which each partition was assigned last.
        self.epochs: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.settled_ms = 0
        self._awaited: set[str] | None = None
        self._plan: dict[int, str] = {}
        self._is_stale = False

    @property
    def is_stable(self) -> bool:
        return self._awaited is None

    def join(self, member: Member) -> None:
        # A new process under an old name is another member: what that one had is free.
        self._forget(member.name)
        self.members[member.name] = member
        self._joined(member.name)
        self.rebalance()

    def leave(self, name: str) -> None:
        """A member said goodbye, or its session is over."""
        if self._forget(name):
            self._joined(name)
            self.rebalance()

    def delete(self) -> None:
        """Nobody lives in it any more, and it is forgotten with all its offsets."""
        self.members, self.owners, self.epochs = {}, {}, {}
        self.generation, self.committed = 0, {}
        self._awaited, self._plan, self._is_stale = None, {}, False

    def rebalance(self) -> None:
        if self._awaited is not None:
            self._is_stale = True
            return
        self.settled_ms = self.world.now_ms
        self._plan = self._share_out()
        self._awaited = set(self.members)
        for name in sorted(self.members):
            self.world.after(self.world.trip_ms(), self._ask_to_join, self.members[name], 0)
        self._joined("")

    def commit(self, name: str, generation: int, partition: int, next_offset: int) -> bool:
        """Whether it was accepted: by a member of this generation only."""
        if name not in self.members or generation != self.generation:
            return False
        for offset in range(self.committed.get(partition, 0), next_offset):
            job = self.world.logs[partition][offset].job
            if job is not None and not self.world.is_settled(job, partition, offset):
                raise Violation(f"{name} commits {next_offset} before {offset} is settled")
        self.committed[partition] = next_offset
        return True

    def _forget(self, name: str) -> bool:
        self.owners = {p: owner for p, owner in self.owners.items() if owner != name}
        return self.members.pop(name, None) is not None

    def _share_out(self) -> dict[int, str]:
        names = sorted(self.members)
        if not names:
            return {}
        chance = self.world.chance
        plan = {}
        for partition in range(len(self.world.logs)):
            owner = self.owners.get(partition)
            is_kept = owner in self.members and chance.random() < 0.7
            plan[partition] = owner if owner and is_kept else chance.choice(names)
        return plan

    def _ask_to_join(self, member: Member, waited_ms: int) -> None:
        name = member.name
        if self._awaited is None or name not in self._awaited:
            return
        if self.members.get(name) is not member:
            return
        if member.is_alive and not member.is_frozen:
            for partition, owner in sorted(self.owners.items()):
                if owner == name and (self.is_eager or self._plan.get(partition) != name):
                    member.revoke(partition)
                    del self.owners[partition]
            self._joined(name)
        elif waited_ms < SESSION_MS:
            self.world.after(50, self._ask_to_join, member, waited_ms + 50)
        else:
            self.leave(name)

    def _joined(self, name: str) -> None:
        if self._awaited is None:
            return
        self._awaited.discard(name)
        if self._awaited:
            return
        self._awaited = None
        self.generation += 1
        for partition, name in sorted(self._plan.items()):
            member = self.members.get(name)
            if member is None:
                self._is_stale = True
                self.owners.pop(partition, None)
                continue
            if self.owners.get(partition) != name:
                self.epochs[partition] = self.generation
                self.owners[partition] = name
                self.world.after(
                    self.world.trip_ms(100), self._assign, member, partition, self.generation
                )
        for member in self.members.values():
            member.generation = self.generation
        self.settled_ms = self.world.now_ms
        if self._is_stale or set(self._plan) != set(range(len(self.world.logs))):
            self._is_stale = False
            self.world.after(20, self.rebalance)

    def _assign(self, member: Member, partition: int, generation: int) -> None:
        # A member learns its assignment before the next round asks it to give it up.
        if self.epochs.get(partition) == generation and self.owners.get(partition) == member.name:
            member.assign(partition, generation, self.committed.get(partition, 0))
            self.settled_ms = self.world.now_ms
