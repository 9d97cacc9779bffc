"""How long a cluster stands still when its leader is killed, paused or cut off: the distribution.

Run as `python -m tests.chaos failover [--rounds 50] [kill] [pause] [cut]`; prints an object a line.
The pause is what publishers see: the longest time without an acknowledgement at any of them, from
just before the fault until acknowledgements flow again.

Invariant: a row is printed only with what the checker says of the whole run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.chaos.checker import check, promises_of
from tests.chaos.faults.proxy import HELD, Network, put_between
from tests.chaos.field import Field
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.notes import Kind, longest_gap_ms, read_notes

CALM_S = 1.0
BEFORE_S = 0.1
OUT_S = 2.5
Fault = Callable[[Field, ChaosNode], Callable[[], object]]
"""Does it; gives what undoes it."""


def kill(_: Field, leader: ChaosNode) -> Callable[[], object]:
    """SIGKILL."""
    leader.kill()
    return leader.start


def pause(_: Field, leader: ChaosNode) -> Callable[[], object]:
    """SIGSTOP."""
    leader.pause()
    return leader.resume


def cut(field: Field, leader: ChaosNode) -> Callable[[], object]:
    """No byte from or to the leader, on connections that stay open."""
    network = field.tool(Network)
    network.set(HELD, lambda source, target: leader.name in (source, target))
    return network.clear


FAULTS: dict[str, Fault] = {"kill": kill, "pause": pause, "cut": cut}


def one_round(field: Field, fault: Fault) -> float:
    """Seconds without an acknowledgement."""
    wait(CALM_S + field.random.random())
    leader = field.leader()
    began = time.monotonic()
    undo = fault(field, leader)
    wait(OUT_S)
    finished = time.monotonic()
    undo()
    field.wait_live()
    notes = [note for path in field.past_notes.values() for note in read_notes(path)]
    told = [note.at_s for note in notes if note.kind is Kind.ACKNOWLEDGED]
    return longest_gap_ms(told, began - BEFORE_S, finished) / 1000


def measure(name: str, rounds: int, seed: int) -> dict[str, object]:
    """All rounds of one fault, on one cluster."""
    directory = Path(tempfile.mkdtemp(prefix=f"failover-{name}-"))
    try:
        with Field(directory, seed=seed, seconds=0) as field:
            field.prepare()
            put_between(field)
            field.start()
            pauses = [one_round(field, FAULTS[name]) for _ in range(rounds)]
            field.heal()
            field.settle()
            field.stop()
            promises = promises_of(field.past_notes, frozenset())
            findings = check(field.copies(), promises)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {
        "fault": name,
        "rounds": rounds,
        "median_s": round(statistics.median(pauses), 3),
        "p90_s": round(sorted(pauses)[int(0.9 * (len(pauses) - 1))], 3),
        "max_s": max(pauses),
        "acknowledged": sum(promise.acknowledged for promise in promises),
        "merged": findings.merged,
        "lost": findings.lost,
        "doubled": findings.doubled,
        "clean": findings.is_clean,
        "pauses_s": sorted(pauses),
    }


def main() -> int:
    """Print a row for each fault."""
    parser = argparse.ArgumentParser(description="Failover times.")
    parser.add_argument("fault", nargs="*", metavar="kill|pause|cut", help="all by default")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.fault if name not in FAULTS]
    if unknown:
        parser.error(f"no fault {unknown[0]!r}")
    clean = True
    for name in options.fault or FAULTS:
        row = measure(name, options.rounds, options.seed)
        clean = clean and row["clean"] is True
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    return 0 if clean else 1
