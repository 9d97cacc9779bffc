"""What is wrong with one replica's logs and files, in words.

Invariant: saying so costs no I/O; whatever is wrong and remains so is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from samelog.sequencer.parts import CareParts, LogParts, RaftParts


def troubles(logs: LogParts, raft: RaftParts, care: CareParts) -> Iterator[str]:
    """Of group 0 or of a data group."""
    if logs.intake.stopped is not None:
        yield f"intake stopped: {logs.intake.stopped}"
    yield from logs.merging.troubles.values()
    for number, reason in raft.coordinator.damaged_inputs().items():
        yield f"input {number}: {reason}"
    yield from care.file_guard.troubles
    yield from care.scrubber.troubles
