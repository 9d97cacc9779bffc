"""What is known of one run of an input: its files, how far they reach, how far they are durable.

Invariant: the files of a run follow each other without a gap; only the last one is not sealed. All
batches between `start` and `end` are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from samelog.format.marks import RunMark
from samelog.store.disk.append_file import AppendFile

RunPosition = tuple[int, int]
"""(roll, byte): a `SessionPosition` of a run that is known."""


@dataclass(slots=True)
class HeldFile:
    """One file of a run; `size` counts whole batches only."""

    roll: int
    size: int
    is_sealed: bool = False
    appender: AppendFile | None = None
    """Only at the writer, and only while it grows."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of an input as others see it."""

    run: int
    roll: int
    size: int
    sealed: bool


@dataclass(slots=True)
class HeldRun:
    """What is held of one run; the files are in the order of their rolls."""

    number: int
    start: RunPosition
    durable: RunPosition
    end: RunPosition = field(init=False)
    """Where the next byte goes."""
    files: dict[int, HeldFile] = field(default_factory=dict)
    newest: HeldFile | None = None
    """The file with the highest roll."""
    hint: int = 0
    """A batch boundary in the file of `durable`, at or before it."""
    last_append: RunPosition | None = None
    """A batch boundary before the end with whole batches behind it; None: not known."""
    last: tuple[int, int] | None = None
    """(start, CRC field) of the last batch, if it is known."""

    def __post_init__(self) -> None:
        self.end = self.start

    def add(self, held: HeldFile) -> HeldFile:
        """A file was added; its roll is above all others."""
        self.files[held.roll] = self.newest = held
        self.end = _end_of(held)
        return held

    def remove(self, roll: int) -> HeldFile:
        """Forget a file that was removed."""
        held = self.files.pop(roll)
        self.newest = next(reversed(self.files.values()), None)
        self.end = self.start if self.newest is None else _end_of(self.newest)
        return held

    def begin_of(self, roll: int) -> int:
        """Where the bytes held of a file begin."""
        return self.start[1] if roll == self.start[0] else 0

    def advance_mark(self, position: RunPosition) -> bool:
        """Everything up to `position`, a batch boundary, is durable. Whether that is news.

        A position behind the end is of a log that was cut meanwhile, and says nothing.
        """
        end = self.end
        if position <= self.durable or position > end:
            return False
        last = self.last_append
        if last is not None and last[0] == position[0] and position == end:
            self.hint = last[1]
        elif self.durable[0] != position[0]:
            self.hint = self.begin_of(position[0])
        else:
            self.hint = self.durable[1]
        self.durable = position
        return True

    def mark(self) -> RunMark:
        """Return the durable mark of this run."""
        return RunMark(self.number, self.durable[0], self.durable[1], self.hint)


def _end_of(newest: HeldFile) -> RunPosition:
    return (newest.roll + 1, 0) if newest.is_sealed else (newest.roll, newest.size)
