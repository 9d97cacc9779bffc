"""The definition of a query topic: which topics a statement reads, what it says, where it writes.

A TOML file:

    [query]
    topic = "delays"                  # where to
    sql = "SELECT carrier, arr_delay FROM flights WHERE arr_delay > 60"
    key = "carrier"                   # a column; without: no keys
    format = "json"                   # or arrow
    output_mode = "append"            # or update
    name = "query-delays"             # what the cluster remembers its last batch by

    [[source]]
    topic = "flights"
    view = "flights"                  # its name in the statement; default: the topic's
    schema = "carrier STRING, arr_delay DOUBLE, time_hour TIMESTAMP"
    format = "json"                   # or csv, avro, arrow; without a schema: Kafka's columns
    watermark = "time_hour, 1 hour"   # a column, and by how much records may be late
    static = false                    # read as a table, again for each micro-batch
    options = { startingOffsets = "latest" }

Invariant: a definition that was parsed has all it needs; what is wrong raises BadOption, which
names the entry and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from samelog.format.errors import InvalidName
from samelog.format.names import check_session_name, check_topic_name
from samelog.spark.errors import BadOption

FORMATS = ("json", "arrow")
MODES = ("append", "update")
VALUE_FORMATS = ("json", "csv", "avro", "arrow")
NAME = "query-"
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUERY = ("topic", "sql", "key", "format", "output_mode", "name")
_SOURCE = ("topic", "view", "schema", "format", "watermark", "static", "options")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A topic that the statement reads. `watermark`: a column, and by how much it may be late."""

    topic: str
    view: str
    schema: str = ""
    format: str = "json"
    watermark: tuple[str, str] | None = None
    static: bool = False
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A query topic."""

    topic: str
    sql: str
    name: str
    key: str | None = None
    format: str = "json"
    output_mode: str = "append"
    sources: tuple[Source, ...] = ()


def parse_tables(told: Mapping[str, Any]) -> Definition:
    """A definition from the tables of its TOML. Raises BadOption."""
    _known("the definition", told, ("query", "source"))
    query, sources = told.get("query"), told.get("source")
    if not isinstance(query, dict) or not isinstance(sources, list) or not sources:
        raise BadOption("a definition has a table [query], and a [[source]] for each topic")
    return _define(query, [_source(each) for each in sources])


def _define(query: Mapping[str, Any], sources: list[Source]) -> Definition:
    _known("[query]", query, _QUERY)
    topic = _topic("[query]", query)
    name = _text("[query]", query, "name", f"{NAME}{topic.lower()}")
    try:
        check_session_name(name)
    except InvalidName as error:
        raise BadOption(f"[query] name: {error}; give another name") from error
    views = [source.view for source in sources]
    twice = next((view for view in views if views.count(view) > 1), None)
    if twice is not None:
        raise BadOption(f"two sources are called {twice}: give one of them another view")
    if all(source.static for source in sources):
        raise BadOption("all sources are static: one of them has to be a stream")
    return Definition(
        topic=topic,
        sql=_text("[query]", query, "sql").strip().rstrip(";"),
        name=name,
        key=_text("[query]", query, "key", "") or None,
        format=_choice("[query]", query, "format", FORMATS),
        output_mode=_choice("[query]", query, "output_mode", MODES),
        sources=tuple(sources),
    )


def _source(told: Any) -> Source:
    if not isinstance(told, dict):
        raise BadOption("each [[source]] is a table with a topic")
    where = f"[[source]] {told.get('topic', '')}".rstrip()
    _known(where, told, _SOURCE)
    topic = _topic(where, told)
    view = _text(where, told, "view", re.sub(r"[^A-Za-z0-9_]", "_", topic))
    if not _VIEW.fullmatch(view):
        raise BadOption(f"{where}: {view!r} is no name for a view: letters, digits and _")
    options, static = told.get("options", {}), told.get("static", False)
    if not isinstance(options, dict) or not isinstance(static, bool):
        raise BadOption(f"{where}: options is a table of texts, static is true or false")
    return Source(
        topic=topic,
        view=view,
        schema=_text(where, told, "schema", ""),
        format=_choice(where, told, "format", VALUE_FORMATS),
        watermark=_watermark(where, _text(where, told, "watermark", "")),
        static=static,
        options={key: str(value) for key, value in options.items()},
    )


def _watermark(where: str, text: str) -> tuple[str, str] | None:
    if not text:
        return None
    column, comma, delay = (part.strip() for part in text.partition(","))
    if not (column and comma and delay):
        raise BadOption(f'{where}: watermark {text!r} is not as "time_hour, 1 hour"')
    return column, delay


def _known(where: str, told: Mapping[str, Any], names: tuple[str, ...]) -> None:
    other = next((name for name in told if name not in names), None)
    if other is not None:
        raise BadOption(f"{where} has no entry {other}; those there are: {', '.join(names)}")


def _topic(where: str, told: Mapping[str, Any]) -> str:
    try:
        return check_topic_name(_text(where, told, "topic"))
    except InvalidName as error:
        raise BadOption(f"{where} topic: {error}") from error


def _text(where: str, told: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = told.get(name, default)
    if not isinstance(found, str) or (default is None and not found.strip()):
        raise BadOption(f"{where} needs {name}, a text")
    return found


def _choice(where: str, told: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
    found = _text(where, told, name, allowed[0])
    if found not in allowed:
        raise BadOption(f"{where} {name}: {found!r} is not one of {', '.join(allowed)}")
    return found
