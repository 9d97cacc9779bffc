"""Which replicas work, and what the others cost."""

from __future__ import annotations

import pytest

from samelog.sequencer.data_groups.working import LINGER_S, LOOK_S, Working


class Replica:
    """Is busy when it is told so."""

    def __init__(self, number: int, looked_at: list[int]) -> None:
        self.number = number
        self._looked_at = looked_at
        self.busy = False
        self.leaves_work = False
        self.due_at: float | None = None
        self.works = False

    @property
    def is_busy(self) -> bool:
        self._looked_at.append(self.number)
        return self.busy

    def work(self) -> None:
        self.works = True

    def tidy(self) -> bool:
        left, self.leaves_work = self.leaves_work, False
        return not left

    def rest(self) -> None:
        self.works = False


class Groups:
    """So many, at work from 0 on."""

    def __init__(self, count: int) -> None:
        self.looked_at: list[int] = []
        self.working: Working[Replica] = Working()
        self.all = [Replica(number, self.looked_at) for number in range(count)]
        for each in self.all:
            self.working.begin(each, 0.0)

    def look(self, now: float) -> list[int]:
        """Who works then."""
        self.working.look(now)
        works = [each.number for each in self.all if each.works]
        assert works == sorted(each.number for each in self.working)
        return works


def test_who_has_nothing_to_do_rests_after_a_while() -> None:
    groups = Groups(3)
    groups.all[1].busy = True
    assert groups.look(LINGER_S - 1) == [0, 1, 2]
    assert groups.look(LINGER_S) == [1]
    groups.all[1].busy = False
    assert groups.look(LINGER_S + 1) == [1], "it was busy just now"
    assert groups.look(2 * LINGER_S) == []


def test_who_rests_is_not_looked_at() -> None:
    groups = Groups(100)
    groups.look(LINGER_S)
    groups.looked_at.clear()
    groups.working.begin(groups.all[7], 20.0)
    assert groups.look(21.0) == [7]
    assert groups.looked_at == [7]


def test_what_tidying_leaves_is_done_first() -> None:
    groups = Groups(1)
    groups.all[0].leaves_work = True
    assert groups.look(LINGER_S) == [0]
    assert groups.look(LINGER_S + 1) == []


@pytest.mark.parametrize("due_s", [1.0, LOOK_S])
def test_who_has_something_due_is_looked_at_then(due_s: float) -> None:
    groups, at = Groups(2), LINGER_S + due_s
    groups.all[0].due_at = at
    assert groups.look(LINGER_S) == []
    assert groups.look(at - 0.5) == []
    assert groups.look(at) == [0]
    groups.all[0].due_at = None
    assert groups.look(at + LINGER_S) == []
    assert groups.look(at + 10 * LOOK_S) == []


def test_who_has_worked_since_is_due_at_another_time() -> None:
    groups = Groups(1)
    groups.all[0].due_at = 100.0
    assert groups.look(LINGER_S) == []
    groups.working.begin(groups.all[0], 50.0)
    groups.all[0].due_at = 200.0
    assert groups.look(60.0) == []
    assert groups.look(100.0) == []
    assert groups.look(200.0) == [0]


def test_who_is_gone_is_not_looked_at() -> None:
    groups = Groups(1)
    groups.all[0].due_at = 100.0
    groups.look(LINGER_S)
    groups.working.end(0)
    assert groups.look(200.0) == []
