"""Where partitions shall be, beside the tasks that move them: a newer wish outlives a task, and one
that is fulfilled is forgotten.

Invariant: a wish names another group than its partition is in, or a task is about to take the
partition out of that one (rule placement.11).
"""

from __future__ import annotations

from collections.abc import Container

from samelog.placement.tasks import PlacementRefused, PlacementTask
from samelog.placement.values import Placement


def check_known(placement: Placement, partition: int, may_leave: Container[int]) -> None:
    """Raises PlacementRefused. `may_leave`: partitions that group 0 may pass on."""
    if partition not in placement.partitions and partition not in may_leave:
        text = f"there is no partition {partition} that can move"
        raise PlacementRefused("UNKNOWN_PARTITION", text)


def newer_wish(placement: Placement, task: PlacementTask | None) -> tuple[int, int] | None:
    """(partition, group): what was wanted after a task began that ends, or is cancelled, now."""
    if task is None or task.partition is None:
        return None
    here, wanted = placement.group_of(task.partition), placement.moves.get(task.partition)
    return None if wanted in (None, here, task.target) else (task.partition, wanted)


def forget_if_fulfilled(placement: Placement, partition: int | None) -> None:
    """A partition that is where it shall be, and that no task takes away, has no wish any more."""
    placed = placement.partitions.get(-1 if partition is None else partition)
    if placed is None or placement.moves.get(placed.number) != placed.group:
        return
    if all(task.partition != partition for task in placement.tasks.values()):
        del placement.moves[placed.number]
