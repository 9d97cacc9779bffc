"""The table that DolphinDB published of its highly available streams, for samelog: rows of 11 and
of 211 columns, 1 and 4 writers, batches of 1 to 10,000 rows, three nodes beside one.

A row is one record of `ROW_BYTES`: eight for each column. A writer hands over batch after batch,
each a record batch of its own, and the clock runs until all are acknowledged: durable on a
majority. With the smallest batches there is a second figure, each batch only once the one before is
acknowledged, which is what DolphinDB's synchronous writes do. Its figures are of three servers with
a network between them; these are of one machine that is all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench import machine
from bench.kafka.systems import new_topic
from bench.processes import Clock, Program, options, stand_by
from bench.rounds.lines import Figures
from bench.rounds.page import Chart, Page, table
from bench.rounds.rows import Figure, Row, Target
from bench.rounds.run import WORK, Measure, Rounds, place_of
from samelog import Publisher
from samelog.admin.client import ask
from samelog.admin.requests import CreateTopic
from samelog.cli.local_cluster import ClusterOptions, LocalCluster

COLUMN_BYTES = 8
HA, ONE = "three nodes", "one node"
NODES = {HA: 3, ONE: 1}
WRITERS, BATCHES = (1, 4), (1, 100, 1_000, 10_000)
SYNC = "one at a time"
POLL_S, WRITTEN_S = 0.0002, 600.0
PEER = "DolphinDB"
CHUNK_BYTES, ROOM = 1 << 20, 64 << 10
"""Of our own bulk: what is handed over at once, and a record batch."""
PUBLISHED: Mapping[int, Mapping[int, tuple[tuple[float, float], ...]]] = {
    11: {
        1: ((671.9, 1_515.8), (2_383.4, 2_451.1), (22_714.4, 23_697.2), (379_046.3, 529_997.9)),
        4: ((884.7, 5_618.0), (9_488.4, 9_776.4), (89_536.3, 93_496.2), (675_641.4, 1_126_475.0)),
    },
    211: {
        1: ((23.4, 23.9), (3_895.2, 4_121.1), (21_833.6, 29_430.8), (59_755.4, 89_136.1)),
        4: ((93.2, 96.2), (13_522.3, 23_371.3), (77_011.2, 107_458.7), (67_816.2, 122_075.9)),
    },
}
"""Rows per second that DolphinDB reached, by columns and writers: for each batch with three servers
and with one.
"""
ROWS = {"1": 20_000, "100": 400_000, "1000": 600_000, "10000": 800_000}
"""Of all writers together, by batch."""
LIMITS = {"most_megabytes": 100, "synchronous": 200}
"""Of a cell; and batches that are written one at a time."""


class Cell(NamedTuple):
    """One cell of the table."""

    columns: int
    writers: int
    batch: int

    @property
    def row_bytes(self) -> int:
        """Of one record."""
        return self.columns * COLUMN_BYTES

    def name(self) -> str:
        """In figures."""
        return f"rows_per_s.{self.columns}.{self.writers}.{self.batch}"


def cells() -> list[Cell]:
    """All of them."""
    return [Cell(c, w, b) for c in PUBLISHED for w in WRITERS for b in BATCHES]


def writes_of(cell: Cell, amounts: Mapping[str, Any]) -> int:
    """Batches of each writer: a share of the rows, and no more bytes than allowed."""
    wanted = amounts["rows"][str(cell.batch)] / cell.writers
    allowed = amounts["most_megabytes"] * 1e6 / cell.row_bytes / cell.writers
    return max(1, int(min(wanted, allowed) / cell.batch))


# --- the writer -----------------------------------------------------------------------------------


def write(given: argparse.Namespace) -> None:
    """So many batches; with `--synchronous` each once the one before is acknowledged."""
    rows = [bytes([number % 256]) * given.size for number in range(given.batch)]
    with Publisher(
        given.topic,
        session=f"{given.topic}-{os.path.basename(given.dir)}",
        directory=given.dir,
        config=given.config,
        batch_bytes=given.room,
    ) as publisher:
        publisher.append(rows[0])
        publisher.wait_merged(timeout=60)
        stand_by()
        clock = Clock()
        for _ in range(given.writes):
            publisher.append_many(rows)
            if given.synchronous:
                wait_acknowledged(publisher)
        wait_acknowledged(publisher)
        clock.found()


def wait_acknowledged(publisher: Publisher) -> None:
    """Until all that was appended is."""
    wanted, deadline = publisher.positions.appended, time.monotonic() + WRITTEN_S
    while not all(
        (reached := publisher.positions.acknowledged.get(partition)) is not None and reached >= at
        for partition, at in wanted.items()
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not acknowledged within {WRITTEN_S:.0f} s")
        time.sleep(POLL_S)


# --- beside the writers ---------------------------------------------------------------------------


def rate(
    cluster: LocalCluster,
    cell: Cell,
    writes: int,
    *,
    room: int | None = None,
    synchronous: bool = False,
) -> float:
    """Rows per second of all writers. `room`: of a record batch; None: a whole batch of rows, as
    far as one may be as large.
    """
    whole = min(1 << 20, max(ROOM, cell.batch * (cell.row_bytes + 32)))
    topic = new_topic("dolphin")
    place = Path(cluster.directory, topic)
    place.mkdir()
    ask(cluster.client_config(), CreateTopic(topic, 1, {}))
    given = {"topic": topic, "config": cluster.client_file, "size": cell.row_bytes}
    given |= {"batch": cell.batch, "writes": writes, "room": room or whole}
    more = ["--synchronous"] if synchronous else []
    with ExitStack() as stack:
        writers = []
        for number in range(cell.writers):
            words = ["write", *options({**given, "dir": place / str(number)}), *more]
            writers.append(stack.enter_context(Program("bench.dolphindb", words)))
        for writer in writers:
            writer.wait_ready()
        machine.settled()
        for writer in writers:
            writer.go()
        found = [writer.result() for writer in writers]
    seconds: float = max(each["ended"] for each in found) - min(each["began"] for each in found)
    shutil.rmtree(place, ignore_errors=True)
    return cell.batch * writes * cell.writers / seconds


class Runner:
    """A round of one part of the table: its cells, on three nodes and on one."""

    def __init__(self, part: tuple[int, int], work: Path, amounts: Mapping[str, Any]) -> None:
        """`part`: columns and writers."""
        self._part = part
        self._work = work
        self._amounts = amounts

    def run(self, number: int) -> tuple[Figures, Mapping[str, str]]:
        """Figures of both clusters, and DolphinDB's beside them."""
        found: dict[str, dict[str, float]] = {name: {} for name in NODES}
        with tempfile.TemporaryDirectory(dir=self._work) as directory, ExitStack() as stack:
            clusters = {}
            for name, nodes in NODES.items():
                place = f"{directory}/{nodes}"
                clusters[name] = LocalCluster(place, ClusterOptions(nodes=nodes))
                stack.enter_context(clusters[name]).start()
            for cell in [Cell(*self._part, batch) for batch in BATCHES]:
                for name in sorted(NODES, reverse=bool(number % 2)):
                    found[name] |= self._cell(clusters[name], cell)
            found[HA][_bulk_name(self._part)] = self._bulk(clusters[HA])
        return {**found, PEER: published()}, {}

    def _cell(self, cluster: LocalCluster, cell: Cell) -> dict[str, float]:
        writes = writes_of(cell, self._amounts)
        found = {cell.name(): rate(cluster, cell, writes)}
        found[_bytes_name(cell)] = found[cell.name()] * cell.row_bytes / 1e6
        if cell.batch <= 100:
            few = min(writes, self._amounts["synchronous"])
            found[f"{cell.name()}.sync"] = rate(cluster, cell, few, synchronous=True)
        return found

    def _bulk(self, cluster: LocalCluster) -> float:
        """MB/s of rows of that size, as fast as one writer can."""
        columns = self._part[0]
        cell = Cell(columns, 1, CHUNK_BYTES // (columns * COLUMN_BYTES))
        writes = max(1, int(self._amounts["most_megabytes"] * 1e6 / CHUNK_BYTES))
        return rate(cluster, cell, writes, room=ROOM) * cell.row_bytes / 1e6


def measure_of(part: tuple[int, int]) -> str:
    """The name of a part of the table."""
    return f"{part[0]} columns, {part[1]} writers"


def _bulk_name(part: tuple[int, int]) -> str:
    return f"mb_per_s.{part[0]}.{part[1]}.bulk"


def _bytes_name(cell: Cell) -> str:
    return f"mb_per_s.{cell.columns}.{cell.writers}.{cell.batch}"


def rows() -> Iterator[Row]:
    """Small batches against DolphinDB, large ones against our own bulk of rows of that size."""
    for cell in cells():
        ours, theirs = Figure(HA, cell.name()), Figure(PEER, cell.name())
        if cell.batch <= 100:
            yield _row(cell, "", ours, theirs, target=Target(at_least=10))
            yield _row(cell, SYNC, Figure(HA, f"{cell.name()}.sync"), theirs)
        else:
            yield _row(cell, "", ours, theirs)
            made = Figure(HA, _bytes_name(cell))
            bulk = Figure(HA, _bulk_name(cell[:2]))
            yield _row(cell, "of our own bulk", made, bulk, target=Target(at_least=0.8))
        yield _row(cell, "of one node", ours, Figure(ONE, cell.name()))


def _row(cell: Cell, note: str, ours: Figure, peer: Figure, *, target: Target | None = None) -> Row:
    name = f"{cell.columns}-{cell.writers}-{cell.batch}"
    what = f"{cell.columns} columns, writers: {cell.writers}, batches of {cell.batch:,}"
    return Row(
        row="-".join([name, *note.split()]),
        what=", ".join([what, note] if note else [what]),
        unit="MB/s" if ours.name.startswith("mb") else "rows/s",
        measure=measure_of(cell[:2]),
        ours=ours,
        peer=peer,
        target=target,
    )


def published() -> dict[str, float]:
    """DolphinDB's own figures with three servers, named as ours."""
    return {
        cell.name(): PUBLISHED[cell.columns][cell.writers][BATCHES.index(cell.batch)][0]
        for cell in cells()
    }


def charts() -> list[Chart]:
    """Rows per second of one writer, by batch."""
    return [
        Chart(
            f"{columns}-{batch}",
            f"{columns} columns, one writer, batches of {batch:,}",
            "rows/s",
            measure_of((columns, 1)),
            {name: Figure(name, Cell(columns, 1, batch).name()) for name in (HA, ONE, PEER)},
            (HA, ONE),
        )
        for columns in PUBLISHED
        for batch in (1, 10_000)
    ]


def compare(rounds: int, share: float, *, as_json: bool) -> int:
    """Run what is missing; print the table."""
    fewer = {batch: max(int(batch), int(count * share)) for batch, count in ROWS.items()}
    amounts = {"rows": fewer, **LIMITS, "most_megabytes": LIMITS["most_megabytes"] * share}
    place, work = place_of(share), WORK
    parts = [(columns, writers) for columns in PUBLISHED for writers in WRITERS]
    measures = [
        Measure(measure_of(part), Runner(part, work, amounts).run, CODE, amounts) for part in parts
    ]
    page = Page(place, "dolphindb", "samelog in DolphinDB's table", list(rows()), charts(), NOTES)
    made = Rounds(measures, page, work)
    made.advance(rounds)
    made.write()
    found = json.loads((place / "dolphindb.json").read_text(encoding="utf-8"))["rows"]
    sys.stdout.write((json.dumps(found) if as_json else table(found)) + "\n")
    return 1 if made.failed() else 0


CODE = ("bench/dolphindb.py",)
NOTES = (__doc__ or "").partition("\n\n")[2]


def main() -> int:
    """`run` compares; `write` is one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["run", "write"], nargs="?", default="run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0, help="of each amount, for a quick look")
    parser.add_argument("--json", action="store_true", help="the rows, as JSON")
    for name in ("topic", "config", "dir"):
        parser.add_argument(f"--{name}")
    for name in ("size", "batch", "writes", "room"):
        parser.add_argument(f"--{name}", type=int, default=0)
    parser.add_argument("--synchronous", action="store_true")
    given = parser.parse_args()
    if given.role == "write":
        write(given)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what runs is stopped
    return compare(given.rounds, given.share, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
