"""The tasks of one replica: those of Raft, and those that look after logs where there are any.

Invariant: none runs twice; while a replica rests none runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from samelog.sequencer.parts import CareParts, LogParts, RaftParts


class ReplicaTasks:
    """Of one replica."""

    def __init__(
        self,
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        raft: RaftParts,
        logs: LogParts,
        care: CareParts,
    ) -> None:
        self._spawn = spawn
        self._raft = raft
        self._logs = logs
        self._care = care
        self._running: list[asyncio.Task[None]] = []
        self.keeping: list[asyncio.Task[None]] = []
        """What looks after logs, since there are any."""

    @property
    def run(self) -> bool:
        """Whether they do."""
        return bool(self._running)

    def work(self, *, keeps: bool) -> None:
        """Begin those that do not run. `keeps`: there are logs."""
        group, logs, care = self._raft.group, self._logs, self._care
        if not self._running:
            runs = group.run_ticks(), group.run_saver(), self._raft.snapshotter.run()
            self._running = [*map(self._spawn, runs)]
        if keeps and not self.keeping:
            care_runs = (
                logs.intake.rounds.run(),
                logs.merging.run_syncer(),
                care.scrubber.run(),
                care.scrubber.serve_complaints(),
                care.file_guard.run(),
                care.compactor.run(),
                care.keys.run(),
                care.keys.lookups.run(),
                *care.archive.runs(),
            )
            self.keeping = [*map(self._spawn, care_runs)]

    def rest(self) -> None:
        """End all, which wait for something."""
        for task in (*self._running, *self.keeping):
            task.cancel()
        self._running, self.keeping = [], []
