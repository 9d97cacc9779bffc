"""Many sessions, single clients and Kafka clients on three nodes: `python -m bench many`.

Each row starts three new nodes. `--against` measures another checkout in turn with this one; each
round of a row is a line of many.jsonl, and an interrupted run continues there.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.many import rows
from bench.many.checkouts import Checkout, RowFailed, other, present
from bench.rounds.lines import Figures
from bench.rounds.page import Page, table
from bench.rounds.run import Measure, Rounds
from tests.campaign.digest import ROOT

WORK = ROOT / "build" / "bench" / "many" / "work"
PLACE = ROOT / "build" / "bench" / "many"
CODE = ("bench/many", "bench/kafka", "bench/latency.py", "bench/throughput.py", "bench/meter.py")
NOTES = """\
Medians of the rounds, ranges in brackets; *ours* is this checkout, *peer* the other one. Three
nodes with `fsync = "always"` and mutual TLS, and all clients, on this one machine, restarted for
each row; each process has a scheduling group of its own, all with the same share. `patience` bounds
how long sessions may take to open: a share below 1 beside a time says that the time is that
bound."""


def main() -> int:
    """Run the rounds that are missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", action="append", choices=sorted(rows.LOADS), help="these rows")
    parser.add_argument("--against", type=Path, help="another checkout with its own environment")
    parser.add_argument("--seconds", type=float, help="of each load, for a quick look")
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers of things")
    parser.add_argument("--place", type=Path, default=PLACE, help="where many.* are written")
    parser.add_argument("--list", action="store_true", help="how many rounds there are")
    parser.add_argument("--json", action="store_true", help="the rows, as JSON")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that what runs is stopped
    WORK.mkdir(parents=True, exist_ok=True)
    sides = [present()]
    if given.against is not None:
        sides.append(other(given.against, WORK))
    page = Page(given.place, "many", "Many sessions", list(rows.table()), [], NOTES)
    rounds = Rounds(measures(sides, given.share, given.seconds), page, WORK)
    if given.list:
        for name, there in rounds.counting().items():
            print(f"{name:20} {len(there)} of {given.rounds} rounds")
        return 0
    rounds.advance(given.rounds, given.only or ())
    rounds.write()
    found = json.loads((given.place / "many.json").read_text(encoding="utf-8"))["rows"]
    print(json.dumps(found) if given.json else table([row for row in found if row["rounds"]]))
    if failed := rounds.failed():
        sys.stderr.write(f"failed: {', '.join(sorted(failed))}\n")
    return 1 if failed else 0


def measures(sides: Sequence[Checkout], share: float, seconds: float | None) -> list[Measure]:
    """Every row, on each checkout."""
    against = {each.name: each.commit for each in sides[1:]}
    made = []
    for name, load in rows.LOADS.items():
        amounts = rows.amounts(load, share, seconds)
        run = partial(one_round, sides, name, amounts)
        made.append(Measure(name, run, CODE, {**amounts, **against}))
    return made


def one_round(
    sides: Sequence[Checkout], name: str, amounts: Mapping[str, Any], number: int
) -> tuple[Figures, Mapping[str, str]]:
    """All checkouts, beginning with another one each round. If one fails, the round has the figures
    of the other one; if all fail, the row does.
    """
    figures, failed = dict[str, dict[str, float]](), dict[str, str]()
    at = number % len(sides)
    for side in (*sides[at:], *sides[:at]):
        try:
            figures[side.name] = side.run(name, amounts, WORK)
        except RowFailed as error:
            sys.stderr.write(f"{error}\n")
            failed[side.name] = str(error)
    if not figures:
        raise RowFailed("; ".join(failed.values()))
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
