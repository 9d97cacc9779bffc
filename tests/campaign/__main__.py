"""Command line: python -m tests.campaign [--minutes N] [--only KIND] [--list] [--json].

Runs what is missing of the figures that docs/reliability.md publishes, a piece at a time, and adds
each result to results.jsonl and to the page; it may be interrupted at any time. The exit code is 0
if nothing that ran on the present code is broken.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from tests.campaign import page, pieces, results
from tests.campaign.plan import (
    Row,
    done,
    is_broken,
    left_s,
    newly_skipped,
    next_piece,
    of_present_code,
    of_row,
)
from tests.campaign.results import Result
from tests.campaign.rows import KINDS, all_rows


def say(text: str) -> None:
    """One line of data."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description="What docs/reliability.md publishes.")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so many")
    parser.add_argument("--only", choices=KINDS, help="rows of this kind")
    parser.add_argument("--list", action="store_true", help="what is there, and what is missing")
    parser.add_argument("--json", action="store_true", help="an object a line")
    return parser.parse_args()


def rows_of(only: str | None) -> list[Row]:
    """The rows that are asked for, as they are now: the code may change between two pieces."""
    return [row for row in all_rows() if only in {None, row.kind}]


def state_of(row: Row, known: Sequence[Result]) -> dict[str, object]:
    """How far a row is."""
    last = next(reversed(of_row(row, known)), None)
    return {
        "kind": row.kind,
        "row": row.name,
        "done": done(row, known),
        "wanted": row.wanted,
        "left_s": round(left_s(row, known)),
        "broken": sum(each.verdict == results.BROKEN for each in of_present_code(row, known)),
        "older": len(of_row(row, known)) - len(of_present_code(row, known)),
        "commit": last.commit if last else "",
        "hours_old": round(_age_h(last), 1) if last else None,
        "why_not": row.why_not,
    }


def _age_h(result: Result) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(result.at)).total_seconds() / 3600


def in_words(state: dict[str, object]) -> str:
    """A row's state, for people."""
    ahead = f"{state['kind']:9}{state['row']:26}"
    if state["why_not"]:
        return f"{ahead}skipped here: {state['why_not']}"
    age = f", the last {state['hours_old']} h ago at {state['commit']}" if state["commit"] else ""
    broken = f", {state['broken']} BROKEN" if state["broken"] else ""
    older = f", {state['older']} of other code" if state["older"] else ""
    return f"{ahead}{state['done']:>6} of {state['wanted']}{broken}{older}{age}"


def advance(options: argparse.Namespace) -> None:
    """Run what is missing, until there is nothing left or no time."""
    end = time.monotonic() + options.minutes * 60
    for row in newly_skipped(rows_of(options.only), results.read()):
        results.add(pieces.skipped(row))
    page.write()
    while True:
        piece = next_piece(rows_of(options.only), results.read(), end - time.monotonic())
        if piece is None:
            return
        result = pieces.run(piece)
        if result is None:
            sys.stderr.write(f"{piece.row.name}: the code changed meanwhile; runs again\n")
            continue
        results.add(result)
        page.write()
        say(json.dumps(asdict(result)) if options.json else told(result))


def told(result: Result) -> str:
    """One result, for people."""
    first = f"{result.at} {result.kind:9}{result.row:26}{result.seed:>8} {result.verdict}"
    return "\n    ".join([f"{first}, {result.count} in {result.took_s} s", *result.remarks])


def main() -> int:
    """List, or run."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # so that a piece is undone
    options = parse()
    if not options.list:
        pieces.PLACE.mkdir(parents=True, exist_ok=True)
        with (pieces.PLACE / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sys.exit("another campaign runs in this tree")
            advance(options)
    known, rows = results.read(), rows_of(options.only)
    for row in rows if options.list else ():
        state = state_of(row, known)
        say(json.dumps(state) if options.json else in_words(state))
    if options.list and not options.json:
        say(f"about {sum(left_s(row, known) for row in rows) / 3600:.1f} h to go")
    broken = [f"{row.kind} {row.name}" for row in rows if is_broken(row, known)]
    if broken:
        sys.stderr.write(f"broken: {', '.join(broken)}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
