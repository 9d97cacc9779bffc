"""Prints what each way costs: `python -m tests.hops [WAY...] [--functions] [--json]`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile

from tests.hops.paths import RUNS, WAYS, HopCounting, Hops

MEMORY = "/dev/shm"
"""Where the disk is always fast: syncs of a slow one go through threads, which costs calls."""


def main() -> None:
    """Count, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.hops", description=__doc__)
    parser.add_argument("ways", nargs="*", default=WAYS, help=f"of {', '.join(WAYS)}; else all")
    parser.add_argument("--functions", action="store_true", help="every function that is called")
    parser.add_argument("--json", action="store_true", help="one object, by way")
    parser.add_argument("--runs", type=int, default=RUNS, help="of which the cheapest counts")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as directory,
        HopCounting(directory, runs=options.runs) as counting,
    ):
        counted = {way: counting.count(way) for way in options.ways}
    if options.json:
        print(json.dumps({way: hops._asdict() for way, hops in counted.items()}))
        return
    for way, hops in counted.items():
        show(way, hops, functions=options.functions)


def show(way: str, hops: Hops, *, functions: bool) -> None:
    """One way, for people."""
    print(
        f"{way:8} {hops.python:5} Python calls, {hops.compiled:5} into compiled code, "
        f"{hops.modules:3} modules, {len(hops.by_function)} functions"
    )
    if functions:
        for function, count in sorted(hops.by_function.items(), key=lambda each: -each[1]):
            print(f"    {count:4} {function}")


if __name__ == "__main__":
    main()
