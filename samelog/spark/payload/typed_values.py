"""Values as rows of their topics' schemas, whatever version wrote each: `valueFormat=schema`.

The version that a topic is read as is chosen where the query is made; the versions that records
were written with are asked of the cluster where the tasks run, because records of newer ones may
come while the query runs.

Invariant: a record is read by the version that its mark says, or that was in force where it was
merged; one that cannot be read as the query's version is a bad value (docs/typed.md, T1, T10).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from samelog.admin.answers import SchemaPage
from samelog.admin.client import topic_schemas
from samelog.admin.errors import AdminError
from samelog.admin.registry import SchemaRegistry
from samelog.config.load import load_client
from samelog.config.values import ConfigError
from samelog.spark.errors import BadOption, NotReadable
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import LogAccess, Options
from samelog.spark.payload.own_schema import columns_of, topic_pages
from samelog.typed.framing import SchemaIds
from samelog.typed.reading import UNREAD_HEADER, TypedReader, covers, headers_of
from samelog.typed.schema import NobodyAnswers, Schema, parse_schema
from samelog.typed.values.halves import Decoded
from samelog.typed.versions import FIRST

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from samelog.spark.plan.offsets import OffsetRange, PartitionName

LEARN_S = 5.0
"""How long nodes may lag that say which versions were in force."""
RETRY_S = 0.05
PAGES_MOST = 1024


@dataclass(frozen=True, slots=True)
class SchemaValues:
    """Of one query; it goes to the hosts that run its tasks."""

    access: LogAccess
    versions: Mapping[str, int]
    """The id of a topic's log -> the version that it is read as; a topic that came later, also one
    that was created again under a name, is read as its newest.
    """
    registry: str

    def decode(self, table: pa.Table, read: OffsetRange, schema: pa.Schema) -> Decoded:
        """A row for each record, or as many as its value has; that of a bad one is null. Raises
        NotReadable, BadOption.
        """
        name, wanted = read.name, self.versions.get(read.topic_id, 0)
        if self.access.where is not None:
            return self._passed(table, read, schema)
        page = _page(self.access, read, table, at_least=wanted or FIRST)
        version = wanted or page.newest
        reader = TypedReader(_schemas(page), version, _ids(self.registry))
        try:
            found = reader.read(table, page.since)
        except NobodyAnswers as error:
            raise NotReadable(f"the schemas of values are not known: {error}") from error
        bad = {each.misfit.index: str(each) for each in found.unread}
        missing = [field.name for field in schema if field.name not in found.table.column_names]
        if missing:
            raise BadOption(f"topic {name.topic}: version {version} has no {', '.join(missing)}")
        rows = found.table.select(schema.names).cast(schema)
        return _with_nulls(rows, list(found.sources), bad)

    def _passed(self, table: pa.Table, read: OffsetRange, schema: pa.Schema) -> Decoded:
        """Decode rows that nodes let pass: they rewrote them as the version that is read, except
        for values that they could not read.
        """
        number = self.access.versions[read.name.topic]
        page = _page(self.access, read, table.slice(0, 0), at_least=number)
        version = _schemas(page)[number]
        told = headers_of(table, UNREAD_HEADER)
        bad = {place: (why or b"").decode(errors="replace") for place, why in told.items()}
        places = [place for place in range(table.num_rows) if place not in bad]
        found = TypedReader({FIRST: version}, FIRST).read(table.take(places), ())
        bad |= {places[each.misfit.index]: str(each) for each in found.unread}
        rows = found.table.select(schema.names).cast(schema)
        return _with_nulls(rows, [places[each] for each in found.sources], bad)


def _with_nulls(rows: pa.Table, sources: list[int], bad: dict[int, str]) -> Decoded:
    """With a row of nulls for each bad value, in the order of the records."""
    import pyarrow as pa

    if bad:
        nothing = pa.Table.from_pylist([{}] * len(bad), schema=rows.schema)
        rows, sources = pa.concat_tables([rows, nothing]), [*sources, *bad]
        order = sorted(range(len(sources)), key=sources.__getitem__)
        rows, sources = rows.take(order), [sources[place] for place in order]
    return Decoded(rows, pa.array(sources, pa.int64()), bad)


def typed_values(options: Options, columns: StructType) -> SchemaValues:
    """What reads the values of a query with these columns. Raises BadOption, NotReadable."""
    if options.access.where is not None:
        _check_where(options)
    pages = topic_pages(options)
    if pages is None:
        raise BadOption("valueFormat=schema asks the cluster: it needs the option config")
    for topic, (_, page) in pages.items():
        _check(topic, page, columns)
    versions = {topic: page.newest for topic, (_, page) in pages.items()}
    _ids(options.values.registry)
    access = replace(options.access, versions=versions)
    by_log = {page.topic_id: page.newest for _, page in pages.values()}
    return SchemaValues(access, by_log, options.values.registry)


def _check_where(options: Options) -> None:
    """Nodes rewrite passing rows as the version that the query was planned with."""
    if options.values.registry:
        raise BadOption("where and registry: nodes ask no registry, so they cannot read values")
    if not options.selection.topics:
        raise BadOption("where and valueFormat=schema: name the topics, with subscribe or assign")


def _check(topic: str, page: SchemaPage, columns: StructType) -> None:
    known = {name: kind.lower() for name, kind in columns_of(page)}
    if not known:
        raise BadOption(f"topic {topic} has no schema, or one with a type that Spark has not")
    for field in columns:
        wanted, found = field.dataType.simpleString(), known.get(field.name, "not there")
        if wanted != found:
            raise BadOption(f"topic {topic}: column {field.name} is {found}, not {wanted}")


@lru_cache(maxsize=8)
def _ids(url: str) -> SchemaIds | None:
    """Of this process: what an id means is asked once. Raises BadOption."""
    try:
        return SchemaRegistry(url) if url else None
    except ValueError as error:
        raise BadOption(f"registry: {error}") from error


# --- where tasks run ------------------------------------------------------------------------------

_pages: dict[tuple[str, PartitionName, str], SchemaPage] = {}
"""Of this process: by config, partition, and the topic's id, which a name has had several of."""


def _page(access: LogAccess, read: OffsetRange, records: pa.Table, *, at_least: int) -> SchemaPage:
    """What says the versions of these records, by a node that has their log. Raises NotReadable."""
    path, name = config_path(access) or "", read.name
    key = path, name, read.topic_id
    page = _pages.get(key)
    deadline = time.monotonic() + LEARN_S
    while page is None or not _knows(page, read.topic_id, at_least, records):
        if page is not None and time.monotonic() > deadline:
            raise NotReadable(_why_unknown(page, read))
        if len(_pages) >= PAGES_MOST:
            _pages.clear()
        page = _pages[key] = _asked(path, name)
        if not _knows(page, read.topic_id, at_least, records):
            time.sleep(RETRY_S)
    return page


def _knows(page: SchemaPage, topic_id: str, at_least: int, records: pa.Table) -> bool:
    if page.topic_id != topic_id or page.newest < at_least:
        return False
    return covers(page.newest, page.next_offset, records)


def _why_unknown(page: SchemaPage, read: OffsetRange) -> str:
    if page.topic_id != read.topic_id:
        return (
            f"{read.name}: the schema of the topic with id {read.topic_id} is not known: the topic "
            f"of that name has the id {page.topic_id}; it was deleted and created again"
        )
    return f"{read.name}: no node that answers knows all versions of its schema"


def _asked(path: str, name: PartitionName) -> SchemaPage:
    try:
        return topic_schemas(load_client(path), *name)
    except (AdminError, ConfigError) as error:
        raise NotReadable(f"{name}: the topic's schema cannot be asked for: {error}") from error


def _schemas(page: SchemaPage) -> Mapping[int, Schema]:
    return {each.version: _parsed(each.schema) for each in page.versions}


_parsed: Any = lru_cache(maxsize=256)(parse_schema)
