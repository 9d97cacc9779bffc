"""When a node tells a reader that it has caught up."""

from __future__ import annotations

from samelog.wire.effects import Send
from samelog.wire.messages import CaughtUp, MergedStartsAt, RollSealed, SegmentSealed
from samelog.wire.pull.sender import BEGINNING, CAUGHT_UP_INTERVAL_S, PullSender
from samelog.wire.push.effects import FileExtent
from samelog.wire.sender import ReadRange, Seal, Sender

BATCH = 10


class _Log:
    """A log of one segment, with a record in each batch."""

    def __init__(self, *, shows_end: bool) -> None:
        self.shows_end = shows_end
        self.base = self.records = 0

    def extent(self, file: int) -> FileExtent | None:
        return FileExtent(self.end()[1], None)

    def sealed(self, seal: Seal) -> RollSealed | SegmentSealed:
        raise AssertionError("no file of this log is sealed")

    def end(self) -> tuple[int, int]:
        return self.base, self.records * BATCH

    def end_offset(self) -> int:
        return self.records

    def log_start(self) -> tuple[int, int, int]:
        return BEGINNING


class _Reader:
    """A sender with one handle; `told` are the offsets of its CaughtUps. Time passes in between, so
    that no CaughtUp has to wait.
    """

    def __init__(self, *, shows_end: bool) -> None:
        self.log = _Log(shows_end=shows_end)
        self.sender = PullSender(Sender(window_bytes=1 << 20, read_bytes=1 << 10))
        self.told: list[int] = []
        self._now = 0.0
        opened = MergedStartsAt(0, "topic-1", 1, 0, 0, 0, 0, 0)
        self.sender.open(0, self.log, opened, (0, 0))
        self._send()

    def grow(self, records: int = 1) -> None:
        """Append records, and send them."""
        self.log.records += records
        self.sender.changed(0)
        self._send()

    def _send(self) -> None:
        while (step := self.sender.next_step()) is not None:
            assert isinstance(step, ReadRange)
            self.sender.sent(0, step.limit_bytes)
        self._now += CAUGHT_UP_INTERVAL_S
        self.sender.rest(self._now)
        for effect in self.sender.effects:
            if isinstance(effect, Send) and isinstance(effect.message, CaughtUp):
                self.told.append(effect.message.end_offset)
        self.sender.effects.clear()


def test_data_shows_a_reader_that_has_caught_up_where_a_merged_log_ends() -> None:
    reader = _Reader(shows_end=True)
    for _ in range(3):
        reader.grow()
    assert reader.told == [0]


def test_a_reader_is_told_each_end_that_data_does_not_show() -> None:
    reader = _Reader(shows_end=False)
    for _ in range(3):
        reader.grow()
    assert reader.told == [0, 1, 2, 3]


def test_a_reader_that_was_told_of_more_is_told_when_all_of_that_is_sent() -> None:
    reader = _Reader(shows_end=True)
    reader.grow()
    reader.sender.confirmed(0, 3)
    reader.grow()
    reader.grow()
    assert reader.told == [0, 2, 3]
    reader.grow()
    assert reader.told == [0, 2, 3]
