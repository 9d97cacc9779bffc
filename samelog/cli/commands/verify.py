"""`samelog verify`: proves that copies of merged logs are whole and the same.

Invariant: exit code 0 means that something was checked, and that nothing was wrong with it.
"""

from __future__ import annotations

import os
import sys

import click

from samelog.cli.output import (
    fail,
    json_option,
    near,
    print_json,
    print_table,
    progress,
    wants_json,
)
from samelog.store.merged.check import PartitionCopy, check_all, find_copies, segment_sizes


@click.command()
@click.argument(
    "directories", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False)
)
@json_option
def command(directories: tuple[str, ...]) -> None:
    """Check and compare the merged logs in DIRECTORIES: data directories of nodes, directories of
    subscribers, or single partitions.

    Each copy by itself: CRCs, offsets dense from the first, indexes. Copies of the same partition
    against each other: byte-identical up to the shorter one. Safe on running nodes and subscribers.

    \b
    Examples:
      samelog verify rt-sequencer-0/data rt-sequencer-1/data rt-sequencer-2/data
      samelog verify node/data /var/lib/subscriber --json
    """
    copies = find_copies(directories)
    if not copies:
        fail(f"no merged logs in {', '.join(directories)}")
    total = sum(sum(segment_sizes(copy).values()) for copy in copies)
    with progress("checking", 2 * total, unit="bytes") as advance:
        faults = check_all(copies, advance)
    if wants_json():
        print_json({"verified": not faults, "copies": copies, "faults": faults})
    else:
        columns = ("partition", "from", "to", "bytes", "checksum", "directory", "verdict")
        print_table(columns, [_row(copy) for copy in copies])
    if faults:
        fail("\n".join(faults))


def _row(copy: PartitionCopy) -> tuple[object, ...]:
    verdict = "; ".join(copy.faults) or "whole"
    checksum = f"{copy.checksum:08x}"
    return (
        copy.name,
        copy.start_offset,
        copy.end_offset,
        copy.size_bytes,
        checksum,
        _place(copy) if sys.stdout.isatty() else copy.directory,
        verdict,
    )


def _place(copy: PartitionCopy) -> str:
    """Its directory, short enough for a line of a terminal: the partition is told beside it."""
    place = near(copy.directory)
    for below in (copy.name, "merged"):
        place = place.removesuffix(os.sep + below)
    return place
