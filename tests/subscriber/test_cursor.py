"""Where one partition of a subscriber stands: what was handed out, and what is dealt with."""

from __future__ import annotations

from typing import Any, cast

from samelog.subscriber.cursor import Cursor


class Reader:
    """Goes where it is told."""

    next_offset = 0

    def seek(self, offset: int) -> None:
        self.next_offset = offset


def cursor(position: int, done: int) -> Cursor:
    made = Cursor(cast(Any, Reader()))
    made.position, made.done = position, done
    return made


def test_what_is_in_hand_stays_so_when_what_follows_was_archived() -> None:
    at_hand = cursor(position=5, done=2)
    at_hand.jump(9)
    assert (at_hand.done, at_hand.position) == (2, 9), "2 to 5 are not dealt with"
    at_hand.jump(1)
    assert (at_hand.done, at_hand.position) == (1, 1), "the log was cut"
    settled = cursor(position=5, done=5)
    settled.jump(9)
    assert (settled.done, settled.position) == (9, 9)
