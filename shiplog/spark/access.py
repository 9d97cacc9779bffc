"""How a host gets at logs: by options, or by its environment.

Invariant: what is read of a range is all of it, in order, or an error; which way it came makes no
difference to the records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from shiplog.spark.catalogue import Logs
from shiplog.spark.errors import BadOption, DataLoss, NotReadable
from shiplog.spark.local_logs import LocalLogs, read_local
from shiplog.spark.offsets import Range
from shiplog.spark.options import Access
from shiplog.subscriber.tail_reader import Chunk

DIRECTORY_VARIABLE = "SHIPLOG_DIRECTORY"


def local_directory(access: Access) -> str | None:
    """Where this host has copies, if anybody says so."""
    return access.directory or os.environ.get(DIRECTORY_VARIABLE)


def open_logs(access: Access) -> Logs:
    """What the driver looks at. Raises BadOption."""
    directory = local_directory(access)
    if directory is None:
        raise BadOption(f"directory is missing: name it, or set {DIRECTORY_VARIABLE}")
    return LocalLogs(directory)


def read_range(access: Access, wanted: Range, *, may_skip: bool) -> Iterator[Chunk]:
    """The batches that hold a range; the first and the last one may hold more. `may_skip`: what is
    archived is left out, instead of being an error.

    Raises:
        NotReadable: it cannot be read now.
        DataLoss: some of it is archived.
    """
    position = wanted.start
    while position < wanted.end:
        try:
            for chunk in _pieces(access, wanted._replace(start=position)):
                position = max(position, chunk.next_offset)
                yield chunk
        except DataLoss as lost:
            if not may_skip or lost.earliest is None:
                raise
            position = max(position, lost.earliest)


def _pieces(access: Access, wanted: Range) -> Iterator[Chunk]:
    directory = local_directory(access)
    if directory is None:
        raise NotReadable(f"{wanted}: {DIRECTORY_VARIABLE} is not set on this host")
    return read_local(directory, wanted, wait_s=access.local_wait_s)
