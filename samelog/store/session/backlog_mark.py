"""Durable marks of bytes that wait at a publisher, written by the process that ships them.

The writer syncs only if it is asked to. This module syncs and marks bytes that wait long because no
node takes them, so that recovery distinguishes later damage to them from a torn tail. The writer's
marks are in a file of their own, because another process may write them at the same time.

Invariant: a mark is a boundary of whole batches, and all bytes below it are durable.
"""

from __future__ import annotations

import os
from contextlib import suppress

from samelog.format.errors import CorruptLog
from samelog.format.file_names import MARKS_FILE, SHIPPING_MARKS_FILE, RunNames, data_name
from samelog.format.marks import InputMarks, RunMark, encode_marks
from samelog.store.disk.batch_walk import batch_heads
from samelog.store.disk.dirty_files import read_marks
from samelog.store.disk.disk_errors import NoSpace
from samelog.store.disk.files import FileSystem


def publisher_mark(fs: FileSystem, directory: str, run: int) -> RunMark | None:
    """Return the highest mark of a run at its publisher; None: there is none."""
    found = []
    for name in (MARKS_FILE, SHIPPING_MARKS_FILE):
        marks = read_marks(fs, directory, InputMarks, name=name)
        found += [] if marks is None else [mark for mark in marks.runs if mark.run == run]
    return max(found, key=lambda mark: (mark.roll, mark.byte), default=None)


def mark_backlog(
    fs: FileSystem, directory: str, run: int, names: RunNames, before: RunMark | None
) -> RunMark | None:
    """Sync the files of a run behind its last mark, and mark them; return the mark. Raises
    NoSuchFile: a file was released meanwhile; DiskFault.
    """
    rolls = sorted(names.data)
    if not rolls:
        return before
    known = RunMark(run, rolls[0], 0, 0) if before is None else before
    end = start = known.byte if known.roll == rolls[-1] else 0
    for roll in rolls:
        if roll < known.roll:
            continue
        file = fs.open(os.path.join(directory, data_name(run, roll)))
        try:
            size = file.size()
            if roll == rolls[-1]:
                with suppress(CorruptLog):  # the last batch may be written just now
                    for head in batch_heads(file, start, size):
                        end = head.start + head.size
            file.datasync()
        finally:
            file.close()
    if (rolls[-1], end) <= (known.roll, known.byte):
        return before
    mark = RunMark(run, rolls[-1], end, start)
    data = encode_marks(InputMarks(runs=[mark]))
    with suppress(NoSpace):  # it may lag until there is room
        fs.write_atomically(os.path.join(directory, SHIPPING_MARKS_FILE), data, durable=False)
    return mark
