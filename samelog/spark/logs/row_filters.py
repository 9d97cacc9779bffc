"""What a query with the option `where` asks of nodes: the rows that pass, and nothing else.

Nodes evaluate the condition by the newest version of the topic's schema, and rewrite the values
by that version; of a topic without a schema they read records. Invariant: what is read in one go
is read by one version; what cannot be read as that version comes as it is, and the query's `mode`
says what becomes of it (docs/typed.md, T24).
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from samelog.admin.client import topic_schemas
from samelog.admin.errors import AdminError
from samelog.config.load import load_client
from samelog.config.values import ConfigError
from samelog.format.arrow import ArrowMissing
from samelog.format.transactions import Isolation
from samelog.spark.errors import BadOption, NotReadable
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import LogAccess
from samelog.typed.filters.operands import BadFilter
from samelog.typed.filters.selection import RowsWanted
from samelog.typed.schema import Schema, parse_schema
from samelog.wire.bounds import RowsAsked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEPT_S = 10.0
"""So long a topic's newest version is not asked for again."""
_known: dict[tuple[int, str, str], tuple[float, Schema | None, int]] = {}
"""By process, configuration and topic."""


def rows_asked(access: LogAccess, topic: str) -> RowsAsked | None:
    """What nodes are asked for; None: for all there is. Raises NotReadable, BadOption."""
    if access.where is None:
        return None
    version = access.versions.get(topic) or _newest(_config(access), topic)[1]
    is_committed = access.isolation is Isolation.READ_COMMITTED
    return RowsAsked(access.where, (), version, is_committed=is_committed)


def check_where(access: LogAccess, topics: Iterable[str]) -> None:
    """Raises BadOption if a condition is none, or none over these topics."""
    if access.where is None:
        return
    if access.archive is not None:
        raise BadOption("where: nodes evaluate it, and an archive has none")
    from samelog.typed.filters.passing import Passing

    for topic in topics:
        schema, version = _newest(_config(access), topic)
        try:
            Passing(RowsWanted(access.where), {} if schema is None else {version: schema}, version)
        except BadFilter as error:
            raise BadOption(f"where: {error}") from error


def narrowed(access: LogAccess, topics: Sequence[str], conditions: Iterable[str]) -> LogAccess:
    """The same with those of these conditions, besides, that nodes evaluate. Raises NotReadable."""
    for text in conditions:
        where = text if access.where is None else f"({access.where}) AND {text}"
        asked = replace(access, where=where)
        try:
            check_where(asked, topics)
        except (BadOption, ArrowMissing):
            continue
        access = asked
    return access


def _config(access: LogAccess) -> str:
    path = config_path(access)
    if path is None:
        raise BadOption("where: nodes evaluate it, so it needs the option config, a client.toml")
    return path


def _newest(path: str, topic: str) -> tuple[Schema | None, int]:
    """The newest version of a topic's schema; 0: there is none. Raises NotReadable."""
    key, now = (os.getpid(), path, topic), time.monotonic()
    known = _known.get(key)
    if known is None or now - known[0] > KEPT_S:
        try:
            page = topic_schemas(load_client(path), topic)
        except (AdminError, ConfigError) as error:
            text = f"where: the schema of {topic} cannot be looked up: {error}"
            raise NotReadable(text) from error
        schema = parse_schema(page.versions[-1].schema) if page.versions else None
        known = _known[key] = now, schema, page.newest
    return known[1], known[2]
