"""What the next run of a session does for the ones that died without an end.

Invariant: an ended run consists of whole valid batches up to its end, and its end is never changed.
"""

from __future__ import annotations

import logging

from samelog.format.file_names import input_name
from samelog.store.disk.files import FileSystem
from samelog.store.session.directory import SessionDirectory
from samelog.store.session.log import InputLog

log = logging.getLogger(__name__)


def end_dead_runs(fs: FileSystem, directory: SessionDirectory) -> None:
    """Cut the torn tails in a locked session directory, and write the missing ends of its runs.

    Raises:
        CorruptLog, UnsupportedFormat, DiskFault
    """
    dead = [run.run for run in directory.runs() if run.end is None]
    if not dead:
        return
    ends: dict[int, dict[str, tuple[int, int]]] = {run: {} for run in dead}
    for topic, partition in directory.inputs():
        repaired = InputLog.open(fs, directory.input_path(topic, partition))
        for damage in repaired.damaged:
            log.error("a file of session %r was damaged: %s", directory.record.session, damage)
        for run in set(dead).intersection(repaired.runs()):
            ends[run][input_name(topic, partition)] = repaired.end(run)
        repaired.settle()  # so that no later start looks through it again
        repaired.close()
    for run in dead:
        directory.end_run(run, ends[run])
