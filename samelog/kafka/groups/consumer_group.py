"""One group of the consumer protocol (KIP-848): epochs, targets, and what each member has.

A change of members, subscriptions or topics raises the group's epoch and gives a new target. Each
member goes there at its own pace: it first gives up what is not its own any more, and gets what
others have given up as soon as they have.

Invariant: no partition is with two members, counting those that a member was asked to give up and
has not confirmed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from samelog.kafka.groups.assignors import ASSIGNORS, DEFAULT
from samelog.sequencer.state.group_commands import ConsumerMember, Phase, SaveConsumerGroup
from samelog.sequencer.state.group_state import GroupState

LEFT_FOR_A_WHILE = -2
"""The epoch of a static member that will come back."""


@dataclass(slots=True)
class ConsumerGroup:
    """A group of the consumer protocol, as its coordinator sees it."""

    group_id: str
    epoch: int = 0
    since_ms: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    targets: dict[str, list[int]] = field(default_factory=dict)
    was_used: bool = False
    saved: tuple[dict[str, ConsumerMember], dict[str, list[int]]] = ({}, {})

    @classmethod
    def restored(cls, group_id: str, state: GroupState) -> ConsumerGroup:
        """A group as the replicated state remembers it."""
        group = cls(group_id, state.generation, state.since_ms)
        group.members, group.targets = dict(state.consumers), dict(state.targets)
        group.saved = (dict(group.members), dict(group.targets))
        return group

    # --- questions --------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """Always "consumer"."""
        return "consumer"

    @property
    def phase(self) -> Phase:
        """Whether there are members."""
        return Phase.STABLE if self.members else Phase.EMPTY

    @property
    def is_waiting(self) -> bool:
        """False: in this protocol no client waits to become a member."""
        return False

    @property
    def state_name(self) -> str:
        """Kafka's name of where the group stands."""
        if not self.members:
            return "Empty"
        return "Stable" if all(map(self.is_settled, self.members.values())) else "Reconciling"

    def subscriptions(self) -> set[str]:
        """All topics that members subscribe to."""
        return {topic for member in self.members.values() for topic in member.subscribed}

    def is_settled(self, member: ConsumerMember) -> bool:
        """Whether a member has what it is to have."""
        has = sorted(member.assigned) == self.targets.get(member.member_id, [])
        return has and not member.revoking and member.epoch in (self.epoch, LEFT_FOR_A_WHILE)

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.assignor is not None:
                votes[member.assignor] = votes.get(member.assignor, 0) + 1
        return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT)

    def holder_of(self, instance_id: str) -> ConsumerMember | None:
        """The static member with an instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    # --- changes ----------------------------------------------------------------------------------

    def retarget(self, topics: Mapping[str, Sequence[int]]) -> None:
        """Begin a new epoch, with these partitions of the subscribed topics."""
        self.epoch += 1
        subscriptions = {name: member.subscribed for name, member in self.members.items()}
        self.targets = ASSIGNORS[self.assignor](subscriptions, topics, self.targets)

    def reconcile(self, member_id: str) -> None:
        """Take a member as far towards its target as the others allow."""
        member, target = self.members[member_id], set(self.targets.get(member_id, ()))
        if member.revoking:
            return
        kept = [number for number in member.assigned if number in target]
        surplus = [number for number in member.assigned if number not in target]
        if surplus:
            self._set(member, assigned=kept, revoking=surplus)
            return
        taken = {
            number
            for name, other in self.members.items()
            if name != member_id
            for number in (*other.assigned, *other.revoking)
        }
        assigned = sorted(target - taken)
        previous = member.previous_epoch if member.epoch == self.epoch else member.epoch
        self._set(member, assigned=assigned, epoch=self.epoch, previous_epoch=previous)

    def confirm(self, member_id: str, owned: set[int]) -> bool:
        """A member says what it owns: whether it has given up what it was asked to."""
        member = self.members[member_id]
        if not member.revoking or owned & set(member.revoking):
            return False
        self._set(member, revoking=[])
        return True

    def _set(self, member: ConsumerMember, **changes: object) -> None:
        changed = msgspec.structs.replace(member, **changes)
        if changed != member:
            self.members[member.member_id] = changed

    def difference(self) -> SaveConsumerGroup | None:
        """What makes the replicated state equal to this, and is taken to be proposed."""
        members, targets = self.saved
        changed = [m for name, m in self.members.items() if members.get(name) != m]
        gone = [name for name in members if name not in self.members]
        moved = [(name, hand) for name, hand in self.targets.items() if targets.get(name) != hand]
        self.saved = (dict(self.members), dict(self.targets))
        if not (changed or gone or moved):
            return None
        return SaveConsumerGroup(self.group_id, self.epoch, changed, gone, moved, self.since_ms)
