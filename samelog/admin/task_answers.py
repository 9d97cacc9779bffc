"""What is answered about tasks of placement.

Invariant: as in `samelog.admin.answers`.
"""

from __future__ import annotations

from samelog.admin.answers import AdminAnswer


class TaskInfo(AdminAnswer, frozen=True):
    """A task of placement, or what is to be one (`number` -1): a member that gets a replica of a
    group, or that shall lead it, and one that loses its own. `waits_for` says what it does now, or
    what is in the way.
    """

    number: int
    kind: str
    group: int
    gets: str | None
    loses: str | None
    state: str
    reason: str
    waits_for: str
    began_ms: int


class TaskRows(AdminAnswer, frozen=True):
    """Tasks that run, what is to be done after them, the most urgent first, and the newest that
    ended. `are_paused`: none is begun.
    """

    are_paused: bool
    running: tuple[TaskInfo, ...]
    waiting: tuple[TaskInfo, ...]
    ended: tuple[TaskInfo, ...]


class Drained(TaskRows, frozen=True):
    """The tasks, and what each node that was named does from now on."""

    nodes: dict[str, str]
