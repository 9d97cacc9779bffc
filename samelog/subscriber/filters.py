"""What a subscriber with a filter asks of nodes, for each of its topics.

Which version of a schema rows are read as is settled once: what was kept says it, then the cluster.
Invariant: a directory has what passed one filter, by one version, for as long as it is there
(docs/typed.md, T22).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from samelog.admin.known_schemas import KnownSchemas
from samelog.format.directory_files import RowsFile
from samelog.format.file_names import parse_input_name
from samelog.format.transactions import Isolation
from samelog.store.disk.files import FileSystem, NoSuchFile
from samelog.store.merged.partition_file import read_whose
from samelog.typed.filters.selection import RowsWanted
from samelog.typed.schema import NobodyAnswers, NoSchema

if TYPE_CHECKING:
    from samelog.config.tables.client import ClientConfig


class Corrupt(Enum):
    """What happens with a record that cannot be read as the reader's version."""

    RAISE = "raise"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """What was asked for."""

    wanted: RowsWanted
    version: int | None
    corrupt: Corrupt
    isolation: Isolation


def filters_of(
    fs: FileSystem,
    directory: str,
    topics: Iterable[str],
    *,
    client: ClientConfig | None,
    options: FilterOptions,
) -> Mapping[str, RowsFile]:
    """By topic; none if nothing is left out, or no node can be asked. Raises BadFilter, NoSchema,
    ArrowMissing, UnsupportedFormat.
    """
    if client is None or options.wanted.is_all:
        return {}
    known = KnownSchemas(fs, directory, client)
    return {
        topic: _kept(fs, directory, topic, options) or _asked(known, topic, options)
        for topic in topics
    }


def _kept(fs: FileSystem, directory: str, topic: str, options: FilterOptions) -> RowsFile | None:
    """What is there already, if it is of the version that is wanted: that of before is."""
    for name in names_in(fs, directory):
        parsed = parse_input_name(name)
        if parsed is None or parsed[0] != topic:
            continue
        found = read_whose(fs, os.path.join(directory, name))
        if isinstance(found, RowsFile) and found.filter == _filter(options, found.version):
            return found if options.version in (None, found.version) else None
    return None


def names_in(fs: FileSystem, directory: str) -> list[str]:
    """What is in a directory; nothing if it is not there."""
    try:
        return fs.list_directory(directory)
    except NoSuchFile:
        return []


def _filter(options: FilterOptions, version: int) -> tuple[str, tuple[str, ...], int, bool, bool]:
    wanted = options.wanted
    skips = options.corrupt is Corrupt.SKIP
    is_committed = options.isolation is Isolation.READ_COMMITTED
    return wanted.where or "", tuple(wanted.columns or ()), version, skips, is_committed


def _asked(known: KnownSchemas, topic: str, options: FilterOptions) -> RowsFile:
    from samelog.typed.filters.passing import NO_SCHEMA, Passing, projected

    wanted, text = options.wanted, ""
    try:
        found = known.version(topic, options.version)
        version, schema = found.number, found.schema
    except NobodyAnswers:
        raise
    except NoSchema:
        heard = known.known(topic)
        if heard is None or heard.newest or wanted.columns is not None or options.version:
            raise
        version = NO_SCHEMA
        Passing(wanted, {}, version)
    else:
        Passing(wanted, {version: schema}, version)
        text = projected(schema, wanted.columns).text
    where, columns, _, skips, is_committed = _filter(options, version)
    return RowsFile(
        topic=topic,
        topic_id="",
        partition=0,
        where=where,
        columns=columns,
        version=version,
        schema_text=text,
        skips_unread=skips,
        is_committed=is_committed,
    )
