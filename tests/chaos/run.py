"""Runs one scenario: set up, load, inject, heal, settle, stop, check, and gives one row.

Invariant: a row's verdict is `kept` or `noticed` only if everything that the scenario expects was
checked and holds; whatever goes wrong on the way makes it `broken`, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from samelog.cli.local_cluster import ClusterError
from samelog.store.disk.disk_errors import DiskFault
from tests.chaos.checker import Findings, check, promises_of
from tests.chaos.field import Field, NotInTime
from tests.chaos.notes import Kind, longest_gap_ms, read_notes
from tests.chaos.registry import Expect, Scenario

BROKEN = "broken"
SKIPPED = "skipped"
REMARKS_MAX = 12


@dataclass(slots=True, kw_only=True)
class Row:
    """What came out of one run."""

    scenario: str
    seed: int
    seconds: float
    acknowledged: int = 0
    merged: int = 0
    lost: int = 0
    unmerged: int = 0
    doubled: int = 0
    reordered: int = 0
    foreign: int = 0
    corrupt_detected: int = 0
    pause_ms: int = 0
    """Longest time without an acknowledgement, at any publisher."""
    read_pause_ms: int = 0
    """Longest time without a record, at the subscriber."""
    healed_in_s: float = 0.0
    power_losses: int = 0
    verdict: str = BROKEN
    remarks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)

    def remark(self, text: str) -> None:
        """Keep a reason, once, and not too many of them."""
        if text not in self.remarks and len(self.remarks) < REMARKS_MAX:
            self.remarks.append(text)


def run_scenario(scenario: Scenario, *, seed: int, seconds: float | None, keep: bool) -> Row:
    """One run, in a directory of its own."""
    duration = scenario.seconds if seconds is None else seconds
    row = Row(scenario=scenario.name, seed=seed, seconds=duration)
    reason = scenario.why_not()
    if reason is not None:
        row.verdict = SKIPPED
        row.remark(reason)
        return row
    directory = Path(tempfile.mkdtemp(prefix=f"chaos-{scenario.name}-"))
    try:
        given = {"nodes": scenario.nodes, "copies": scenario.copies}
        with Field(directory, seed=seed, seconds=duration, **given) as place:
            _run(scenario, place, row)
    except (NotInTime, ClusterError, DiskFault, OSError, subprocess.CalledProcessError) as error:
        row.remark(str(error))
    finally:
        if keep:
            row.remark(f"kept in {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return row


def _run(scenario: Scenario, place: Field, row: Row) -> None:
    place.prepare()
    if scenario.prepare is not None:
        scenario.prepare(place)
    place.start()
    began = time.monotonic()
    problem = ""
    try:
        scenario.inject(place)
        healed = time.monotonic()
        place.heal()
        place.wait_live()
        finished = time.monotonic()
        place.settle()
        row.healed_in_s = round(time.monotonic() - healed, 2)
    except NotInTime as error:
        finished = time.monotonic()
        problem = str(error)
    place.stop()
    _measure(place, row, began, finished)
    _judge(scenario, place, row, problem)


def _measure(place: Field, row: Row, began: float, finished: float) -> None:
    notes = [note for path in place.past_notes.values() for note in read_notes(path)]
    told = [note.at_s for note in notes if note.kind is Kind.ACKNOWLEDGED]
    row.pause_ms = longest_gap_ms(told, began, finished)
    paths = place.directory.glob(f"notes-{place.subscriber.name}-*")
    received = [note.at_s for path in paths for note in read_notes(path)]
    row.read_pause_ms = longest_gap_ms(received, began, finished)


def _judge(scenario: Scenario, place: Field, row: Row, problem: str) -> None:
    promises = promises_of(place.past_notes, frozenset(place.lost_disks))
    findings = check(place.copies(), promises)
    row.power_losses = place.power_losses
    row.acknowledged = sum(promise.acknowledged for promise in promises)
    row.merged, row.lost, row.unmerged = findings.merged, findings.lost, findings.unmerged
    row.doubled, row.reordered = findings.doubled, findings.reordered
    row.foreign = findings.foreign + findings.holes
    alarms = [line for node in place.nodes for line in node.alarms()] + place.rejected()
    row.corrupt_detected = len(alarms) + sum(len(node.quarantined()) for node in place.nodes)
    for text in (problem, *place.remarks, *findings.faults):
        if text:
            row.remark(text.replace(str(place.directory) + "/", ""))
    if scenario.expect is Expect.KEPT:
        row.verdict = Expect.KEPT.value if findings.is_clean and not problem else BROKEN
    else:
        is_noticed = _is_noticed(findings, row) and not problem
        row.verdict = Expect.NOTICED.value if is_noticed else BROKEN


def _is_noticed(findings: Findings, row: Row) -> bool:
    """Nothing wrong is served, and either all is there or the damage was reported."""
    wrong = findings.doubled + findings.reordered + findings.foreign
    return wrong == 0 and (findings.is_clean or row.corrupt_detected > 0)
