"""Who will hold which group once all that is planned is done.

Members for new copies are chosen by this, so that plans made together do not all choose the same
member. Invariant: counts are those of the groups' planned members.
"""

from __future__ import annotations

from samelog.placement.tasks import PlacementTask, TaskKind, TaskState
from samelog.placement.values import PlacedGroup


class Holdings:
    """Planned members and leaders of all groups."""

    def __init__(self) -> None:
        self.members: dict[int, tuple[int, ...]] = {}
        self.preferred: dict[int, int] = {}
        self.held: dict[int, set[int]] = {}
        self.led: dict[int, set[int]] = {}

    def plan(
        self, group: PlacedGroup, gets: int | None = None, loses: int | None = None
    ) -> tuple[int, ...]:
        """A group's members, with one more and one less."""
        members = [each for each in group.members if each != loses]
        if gets is not None and gets not in members:
            members.append(gets)
        self.forget(group.number)
        self.members[group.number] = tuple(members)
        is_gone = group.preferred not in members
        preferred = members[-1] if is_gone and members else group.preferred
        self.preferred[group.number] = preferred
        for member in members:
            self.held.setdefault(member, set()).add(group.number)
        self.led.setdefault(preferred, set()).add(group.number)
        return tuple(members)

    def plan_task(self, group: PlacedGroup, task: PlacementTask) -> None:
        """As it will be when a task has ended."""
        if task.kind in (TaskKind.LEAD, TaskKind.READ) or task.target is not None:
            self.plan(group)
        elif task.state is TaskState.CANCELLING:
            self.plan(group, None, task.gets)
        else:
            self.plan(group, task.gets, task.loses)

    def forget(self, number: int) -> None:
        """Forget a group that is planned again, or gone."""
        for member in self.members.pop(number, ()):
            self.held[member].discard(number)
        if number in self.preferred:
            self.led[self.preferred.pop(number)].discard(number)

    def of(self, number: int) -> tuple[tuple[int, ...], int | None]:
        """Planned members and leader of a group."""
        return self.members.get(number, ()), self.preferred.get(number)

    def count(self, member: int) -> int:
        """How many groups a member will hold."""
        return len(self.held.get(member, ()))

    def leads(self, member: int) -> int:
        """How many groups a member shall lead."""
        return len(self.led.get(member, ()))
