"""How a host gets at logs: by options, or by its environment.

A local copy is read where there is one that has come far enough; else any node is asked. Invariant:
what is read of a range is all of it, in order, or an error; which way it came makes no difference
to the records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from samelog.config.schema.environment import CONFIG_VARIABLE
from samelog.spark.errors import BadOption, DataLoss, NotReadable, SourceError
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import LogAccess, ReadMode
from samelog.spark.plan.catalogue import Logs
from samelog.spark.plan.offsets import OffsetRange

if TYPE_CHECKING:
    from samelog.spark.logs.nodes import Nodes
    from samelog.subscriber.tail_reader import Chunk

DIRECTORY_VARIABLE = "SAMELOG_DIRECTORY"

_nodes: dict[tuple[int, str], Nodes] = {}
"""By process and configuration: Spark uses its Python processes for many tasks."""


def local_directory(access: LogAccess) -> str | None:
    """Where this host has copies, if somebody says so and they may be read."""
    if access.mode is ReadMode.REMOTE:
        return None
    return access.directory or os.environ.get(DIRECTORY_VARIABLE)


def open_logs(access: LogAccess) -> Logs:
    """What the driver looks at: an archive if there is one; nodes, which know best; or else copies.
    Raises SourceError.
    """
    if access.archive is not None:
        from samelog.spark.logs.archived_logs import ArchivedLogs

        return ArchivedLogs(access.archive)
    path, directory = config_path(access), local_directory(access)
    if path is not None:
        from samelog.spark.logs.nodes import Nodes, RemoteLogs

        nodes = Nodes(path, timeout_s=access.fetch_timeout_s)
        return RemoteLogs(nodes, access.isolation)
    if directory is None:
        raise BadOption(f"with readMode={access.mode.value} a query needs {_needs(access)}")
    from samelog.spark.logs.local_logs import LocalLogs

    return LocalLogs(directory, access.isolation)


def _needs(access: LogAccess) -> str:
    config = f"the option config, a client.toml (or {CONFIG_VARIABLE})"
    directory = f"the option directory, a subscriber's (or {DIRECTORY_VARIABLE})"
    match access.mode:
        case ReadMode.LOCAL:
            return directory
        case ReadMode.REMOTE:
            return config
        case _:
            return f"{config}, or {directory}"


def read_range(
    access: LogAccess, wanted: OffsetRange, *, may_skip: bool
) -> Iterator[tuple[Chunk, int, int]]:
    """The batches that hold a range, each with the offsets [start, end) of it that are wanted.
    `may_skip`: what is archived is left out, instead of being an error.

    Raises:
        NotReadable: it cannot be read now.
        DataLoss: some of it is archived.
    """
    position = wanted.start
    while position < wanted.end:
        try:
            for chunk in _pieces(access, wanted._replace(start=position)):
                start, position = position, chunk.next_offset
                yield chunk, start, min(position, wanted.end)
        except DataLoss as lost:
            if not may_skip or lost.earliest is None:
                raise
            position = max(position, lost.earliest)


def _pieces(access: LogAccess, wanted: OffsetRange) -> Iterator[Chunk]:
    """Chunks of the range: from this host's copy, and what it lacks from nodes."""
    directory, path = local_directory(access), config_path(access)
    position, problem = wanted.start, ""
    directory = directory if access.where is None else None
    if directory is not None:
        from samelog.spark.logs.local_logs import read_local

        try:
            wait_s, isolation = access.local_wait_s, access.isolation
            for chunk in read_local(directory, wanted, wait_s=wait_s, isolation=isolation):
                position = chunk.next_offset
                yield chunk
        except SourceError as error:
            if path is None:
                raise
            problem = f"{error}; and "
    if position < wanted.end:
        yield from _from_nodes(access, path, wanted._replace(start=position), problem)


def _from_nodes(
    access: LogAccess, path: str | None, wanted: OffsetRange, problem: str
) -> Iterator[Chunk]:
    if path is None:
        raise NotReadable(f"{wanted}: to read it, this host needs {_needs(access)}")
    rows = None
    if access.where is not None:
        from samelog.spark.logs.row_filters import rows_asked

        rows = rows_asked(access, wanted.name.topic)
    try:
        yield from shared_nodes(path, access).read(wanted, access.isolation, rows)
    except NotReadable as error:
        raise NotReadable(f"{wanted}: {problem}{error}") from error


def shared_nodes(path: str, access: LogAccess) -> Nodes:
    """Nodes, asked over one connection of this process for all its tasks. Raises NotReadable."""
    from samelog.spark.logs.nodes import Nodes

    key = os.getpid(), path
    found = _nodes.get(key)
    if found is None:
        found = _nodes[key] = Nodes(path, timeout_s=access.fetch_timeout_s)
    return found
