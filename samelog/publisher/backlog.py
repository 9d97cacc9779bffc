"""Counts the records that earlier runs of a session left in its directory.

Nodes may have merged some of them: a publisher learns that later, and removes the files.

Invariant: nothing is written; of a damaged file, the records before the damage count.
"""

from __future__ import annotations

import mmap
import os

from samelog.format._kernels import scan
from samelog.format.file_names import data_name, parse_input_name, parse_names


def left_records(directory: str) -> int:
    """Return how many records the files of a session hold; 0 if there is no such directory."""
    try:
        inputs = [name for name in os.listdir(directory) if parse_input_name(name) is not None]
    except FileNotFoundError:
        return 0
    return sum(_records_in(os.path.join(directory, name)) for name in inputs)


def _records_in(path: str) -> int:
    found = parse_names(os.listdir(path)).items()
    files = [data_name(run, roll) for run, names in found for roll in names.data]
    return sum(_records_of(os.path.join(path, name)) for name in files)


def _records_of(path: str) -> int:
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return scan(data, verify_crc=False).records
    except (FileNotFoundError, ValueError):  # it was shipped and removed meanwhile, or is empty
        return 0
