"""One part of the soak, as a process of its own: python -m tests.campaign.soak --minutes N prints
what it came to, as one JSON object.

Three publishers write 2,000 records a second, the nodes copy segments away and archive them, and
one node is restarted every five minutes. A part begins with the directory that the last one left.

Invariant: a part that is interrupted or broken leaves nothing that another part begins with.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from filecmp import cmp
from pathlib import Path
from typing import Any

from samelog.cli.local_cluster import ClusterError
from samelog.config.tables.node import NodeConfig
from samelog.format.arrow import to_arrow
from samelog.format.errors import LogFormatError
from samelog.format.file_names import LOG, segment_bases
from samelog.store.merged.check import check_all, check_file, find_copies, segment_sizes
from tests.campaign.digest import ROOT
from tests.campaign.results import BROKEN, KEPT
from tests.chaos.checker import Findings, RecordCheck, judge, promises_of
from tests.chaos.field import Field, LoadProcess, NotInTime
from tests.chaos.load import TOPIC
from tests.chaos.nodes import ChaosNode, wait
from tests.chaos.notes import Kind, longest_gap_ms, read_notes

PLACE = ROOT / "build" / "campaign" / "soak"
STATE = PLACE / "state.json"
PUBLISHERS, RATE = 3, 2000.0
POLICY = {"time": 0, "limit": "64Mi", "disk": 100}
ARCHIVING_MINUTES = 5
"""After so many there is more than the policy keeps."""
MINUTE_S = 60.0
RESTART_EVERY, RESTART_AT = 5, 3
"""Minutes."""
STOP_S = 30.0


class SoakField(Field):
    """Publishers and a subscriber of a part have names of their own: nothing but the nodes' data
    goes on from part to part.
    """

    def __init__(self, directory: Path, part: int) -> None:
        super().__init__(directory, seed=part, seconds=0)
        self.publishers = [
            LoadProcess(self, "publisher", f"part{part}-{number}", RATE / PUBLISHERS)
            for number in range(PUBLISHERS)
        ]
        self.subscriber = LoadProcess(self, "subscriber", f"reader{part}", 0)
        self.target = directory / "copies"
        self.samples: list[tuple[int, int, int, float, int]] = []
        """Minute of the soak, number of the node, seconds since it started, MB, descriptors."""
        self.restarts = 0
        self._started: dict[str, float] = {}

    def prepare(self) -> None:
        """Have the nodes copy and archive."""
        super().prepare()
        policy = self.directory / "policy.json"
        policy.write_text(json.dumps(POLICY), encoding="utf-8")
        self.target.mkdir(exist_ok=True)

        def edit(config: NodeConfig) -> NodeConfig:
            archive = replace(config.archive, policy=str(policy), copy_to=str(self.target))
            return replace(config, archive=archive)

        for node in self.nodes:
            node.change(edit)

    def start(self) -> None:
        """Note since when the nodes run."""
        self._started = {node.name: time.monotonic() for node in self.nodes}
        super().start()

    def restart(self, node: ChaosNode) -> None:
        """Stop a node cleanly, start it, wait until it is Live."""
        node.stop(STOP_S)
        self._started[node.name] = time.monotonic()
        node.start()
        self.wait_live()
        self.restarts += 1

    def sample(self, minute: int) -> None:
        """Note what each node uses."""
        for number, node in enumerate(self.nodes):
            age_s = round(time.monotonic() - self._started[node.name])
            self.samples.append((minute, number, age_s, *used_by(node)))

    def _received(self) -> int:
        """A subscriber that begins with what is kept has not counted what came before it."""
        return end_of(self.subscriber.directory / self.subscriber.name)


def used_by(node: ChaosNode) -> tuple[float, int]:
    """Resident memory in MB, and open descriptors."""
    place = Path("/proc", str(node.pid))
    pages = int((place / "statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGESIZE") / 1e6, 1), len(list((place / "fd").iterdir()))


def disk_mb(directory: Path) -> float:
    """What the files below a directory take."""
    sizes = (path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
    return round(sum(sizes) / 1e6, 1)


def end_of(directory: Path) -> int:
    """The offset behind the last record of a copy; 0 where there is none."""
    copies = find_copies([str(directory)]) if directory.exists() else []
    for copy in copies:
        sizes = segment_sizes(copy)
        base = max(sizes, default=0)
        if sizes.get(base):
            return check_file(copy, base, sizes[base], lambda _: None).segment.next_offset
        return max(base, copy.start_offset)
    return 0


# --- judging --------------------------------------------------------------------------------------


def segments(target: Path, node_data: Path) -> tuple[dict[int, Path], list[str]]:
    """Base offset -> the file of every segment: its copy, or the node's if there is none; and in
    which the two differ.
    """
    kept = node_data / "merged" / f"{TOPIC}-0"
    faults: list[str] = []
    found = {int(path.stem): path for path in target.rglob(f"segments/0/*{LOG}")}
    for base in segment_bases(os.listdir(kept)):
        path = kept / f"{base:020d}{LOG}"
        if base in found and path.stat().st_size and not cmp(found[base], path, shallow=False):
            faults.append(f"the copy of segment {base} is not the segment")
        found.setdefault(base, path)
    return dict(sorted(found.items())), faults


def values_from(
    files: dict[int, Path], first: int, faults: list[str]
) -> Iterator[list[bytes | None]]:
    """The values of all records from an offset on; offsets that are nowhere are faults."""
    behind = [*list(files)[1:], sys.maxsize]
    expected = first
    for (base, path), next_base in zip(files.items(), behind, strict=True):
        if next_base <= first:
            continue
        if base > expected:
            faults.append(f"segment {base} follows offset {expected}")
        data = path.read_bytes()
        if not data and base != max(files):
            faults.append(f"segment {base} is empty")
        if not data:
            continue
        table = to_arrow(data, 0, len(data), topic=TOPIC, partition=0)
        offsets = table["offset"].to_pylist()
        if offsets != list(range(base, base + len(offsets))):
            faults.append(f"segment {base} does not hold one record after the other")
        expected = base + len(offsets)
        yield table["value"].to_pylist()[max(0, first - base) :]


def judged(place: SoakField, first: int) -> Findings:
    """Everything that this part has appended is there once, in order, in all copies."""
    promises = promises_of(place.past_notes, frozenset())
    copies = find_copies([str(path) for path in place.copies()])
    faults = check_all(copies, lambda _: None)
    ends = {copy.end_offset for copy in copies}
    if len(copies) != len(place.copies()) or len(ends) != 1:
        faults.append(f"{len(copies)} copies end at {sorted(ends)}")
    files, differing = segments(place.target, Path(place.nodes[0].data))
    check = RecordCheck()
    for values in values_from(files, first, faults):
        check.take(values)
    findings = judge(check, promises)
    # Records of earlier parts have no place here.
    surplus = findings.merged - sum(promise.appended for promise in promises)
    findings.doubled = max(findings.doubled, surplus)
    findings.faults = faults + differing
    return findings


def archived(place: SoakField) -> int:
    """How many segments the first node has let go of."""
    kept = Path(place.nodes[0].data, "merged", f"{TOPIC}-0")
    bases = segment_bases(os.listdir(kept))
    sizes = {base: (kept / f"{base:020d}{LOG}").stat().st_size for base in bases}
    return sum(size == 0 for base, size in sizes.items() if base < max(sizes))


# --- one part -------------------------------------------------------------------------------------


def load(place: SoakField, age: int, minutes: int) -> None:
    """Sample every minute, restart a node every fifth."""
    began = time.monotonic()
    for minute in range(age + 1, age + minutes + 1):
        wait(max(0.0, began + (minute - age) * MINUTE_S - time.monotonic()))
        place.sample(minute)
        if minute % RESTART_EVERY == RESTART_AT % RESTART_EVERY:
            place.restart(place.nodes[minute // RESTART_EVERY % len(place.nodes)])


def run_part(directory: Path, part: int, age: int, minutes: int) -> dict[str, Any]:
    """One part: its figures, `verdict` and `remarks`."""
    remarks: list[str] = []
    shutil.rmtree(directory / "subscribers", ignore_errors=True)
    place = SoakField(directory, part)
    with place:
        place.prepare()
        first = end_of(Path(place.nodes[0].data))
        place.start()
        began = time.monotonic()
        try:
            load(place, age, minutes)
            finished = time.monotonic()
            place.settle()
        except NotInTime as error:
            finished = time.monotonic()
            remarks.append(str(error))
        place.stop()
        findings = judged(place, first)
        figures = _figures(place, findings, began, finished)
    if age + minutes >= ARCHIVING_MINUTES and not figures["archived"]:
        remarks.append("nothing was archived")
    is_kept = findings.is_clean and not remarks
    return {
        "minutes": minutes,
        **figures,
        "verdict": KEPT if is_kept else BROKEN,
        "remarks": [*remarks, *findings.faults],
    }


def _figures(place: SoakField, findings: Findings, began: float, finished: float) -> dict[str, Any]:
    notes = [note for path in place.past_notes.values() for note in read_notes(path)]
    told = [note.at_s for note in notes if note.kind is Kind.ACKNOWLEDGED]
    promises = promises_of(place.past_notes, frozenset())
    return {
        "acknowledged": sum(promise.acknowledged for promise in promises),
        "lost": findings.lost,
        "unmerged": findings.unmerged,
        "doubled": findings.doubled,
        "reordered": findings.reordered,
        "foreign": findings.foreign + findings.holes,
        "pause_ms": longest_gap_ms(told, began, finished),
        "restarts": place.restarts,
        "archived": archived(place),
        "disk_mb": round(sum(disk_mb(Path(node.data)) for node in place.nodes), 1),
        "samples": place.samples,
    }


def main() -> None:
    """Continue where the last part ended; start over if that failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that everything is undone
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    minutes = parser.parse_args().minutes
    known = {"part": 0, "minutes": 0}
    if STATE.exists():
        known = json.loads(STATE.read_text(encoding="utf-8"))
        STATE.unlink()
    else:
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(parents=True)
    part, age = known["part"] + 1, known["minutes"]
    try:
        told = run_part(PLACE, part, age, minutes)
    except (NotInTime, ClusterError, LogFormatError, OSError) as error:
        told = {"verdict": BROKEN, "remarks": [f"{type(error).__name__}: {error}"]}
    _keep(told, {"part": part, "minutes": age + minutes})
    sys.stdout.write(json.dumps(told) + "\n")


def _keep(told: dict[str, Any], state: dict[str, int]) -> None:
    """Leave the directory to the next part, or set it aside."""
    if told["verdict"] == KEPT:
        STATE.write_text(json.dumps(state), encoding="utf-8")
        return
    aside = PLACE.with_name(f"soak-broken-{time.strftime('%Y%m%d-%H%M%S')}")
    PLACE.rename(aside)
    told["remarks"].append(f"kept in {aside}")


if __name__ == "__main__":
    main()
