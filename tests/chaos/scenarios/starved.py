"""A host with far too little processor time for what runs on it.

Invariant: every process that burns time is ended when the scenario heals.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from tests.chaos.field import Field, LoadProcess, NotInTime
from tests.chaos.nodes import wait
from tests.chaos.notes import Kind, longest_gap_ms, read_notes
from tests.chaos.programs import NICE
from tests.chaos.registry import scenario

BURNERS = 20
PUBLISHERS, SUBSCRIBERS = 40, 10
RATE = 20.0
"""Records a second of each publisher: what starves the cluster is to be the burners."""
CALM_S = 60.0
"""From then on few elections are due."""
ELECTIONS_MAX = 3
GAP_MAX_S = 15.0
"""Of one publisher, without an acknowledgement."""
BURN = "while True: pass"


def crowd(field: Field) -> None:
    """Many publishers and subscribers instead of few."""
    field.publishers = [
        LoadProcess(field, "publisher", f"p{number}", RATE) for number in range(PUBLISHERS)
    ]
    field.onlookers = [
        LoadProcess(field, "subscriber", f"reader{number}", 0) for number in range(SUBSCRIBERS - 1)
    ]


def _burn(field: Field) -> None:
    """Start processes that want a processor for as long as the fault lasts.

    Each in a session of its own, as the nodes: Linux shares out processors among sessions first
    (autogroups), and by niceness only within one.
    """
    command = ["nice", "-n", str(NICE), sys.executable, "-c", BURN]
    for _ in range(BURNERS):
        burner = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        field.on_heal(burner.wait)
        field.on_heal(burner.kill)


def _gap_s(path: Path, began: float) -> float:
    told = [note.at_s for note in read_notes(path) if note.kind is Kind.ACKNOWLEDGED]
    return longest_gap_ms(told, began, time.monotonic()) / 1000


@scenario("starved", prepare=crowd, seconds=300.0)
def starved(field: Field) -> None:
    """20 processes that only burn time beside 40 publishers and 10 subscribers: after the first
    minute at most 3 elections, and no publisher waits longer than 15 s for an acknowledgement.
    """
    field.wait_for(
        lambda: all(load.is_acknowledged() for load in field.publishers), "everybody ships"
    )
    began = time.monotonic()
    _burn(field)
    calm_s = min(CALM_S, field.seconds / 2)
    wait(calm_s)
    before = field.elections()
    wait(field.seconds - calm_s)
    elections = field.elections() - before
    gap_s = max(_gap_s(path, began) for path in field.past_notes.values())
    field.remarks.append(
        f"{elections} elections after the first {calm_s:.0f} s, {gap_s:.1f} s without an "
        "acknowledgement at one publisher"
    )
    if gap_s > GAP_MAX_S:
        raise NotInTime(f"a publisher waited {gap_s:.1f} s for an acknowledgement")
    if elections > ELECTIONS_MAX:
        raise NotInTime(f"{elections} elections in {field.seconds - calm_s:.0f} s")
