"""The schema that topics have of their own: their setting `value_schema` (docs/archiving.md), or
the newest version of their schema (docs/typed.md), if that has the format of the query and Spark
has its types.

Invariant: all topics of a query have the same one, or it is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from samelog.admin.answers import SchemaPage, TopicInfo
from samelog.admin.client import ask, topic_schemas
from samelog.admin.errors import AdminError
from samelog.admin.requests import ListTopics
from samelog.archiver.copies.value_schema import TEXT_CHARACTERS, VALUE_SCHEMA, parse_schema
from samelog.config.load import load_client
from samelog.config.values import ConfigError
from samelog.spark.errors import BadOption, NotReadable
from samelog.spark.logs.config_file import config_path
from samelog.spark.options import Options, TopicSelection, ValueFormat
from samelog.typed.schema import SchemaFormat
from samelog.typed.schema import parse_schema as read_schema
from samelog.typed.types import ColumnType, TypeKind

TYPES: Mapping[str, str] = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "string": "STRING",
    "date32": "DATE",
    "timestamp[ms]": "TIMESTAMP",
}
"""Spark's names for the types that a setting may have."""


def own_schema(options: Options) -> str | None:
    """The columns of the payload as SQL, as the cluster knows them; None where there is no cluster
    to ask, or nobody has said anything. Raises NotReadable, BadOption.
    """
    pages = topic_pages(options)
    if pages is None:
        return None
    wanted = _FORMATS.get(options.values.format)
    if wanted is not None:
        columns = {name: columns_of(page, wanted) for name, (_, page) in pages.items()}
        return _common(columns, "schema")
    return common_schema({name: _json_columns(*each) for name, each in pages.items()})


ANY = tuple(SchemaFormat)
_FORMATS = {ValueFormat.AVRO: (SchemaFormat.AVRO,), ValueFormat.SCHEMA: ANY}
"""Which formats a topic's schema may have, where only that counts."""


def topic_pages(options: Options) -> dict[str, tuple[TopicInfo, SchemaPage]] | None:
    """The topics of a query, and their schemas; None where there is no cluster to ask. Raises
    NotReadable.
    """
    path = None if options.access.archive is not None else config_path(options.access)
    if path is None:
        return None
    try:
        client = load_client(path)
        found = ask(client, ListTopics()).topics
        read = [topic for topic in found if _is_read(options.selection, topic.name)]
        return {topic.name: (topic, topic_schemas(client, topic.name)) for topic in read}
    except (AdminError, ConfigError) as error:
        raise NotReadable(
            f"the topics' own {VALUE_SCHEMA} cannot be looked up: {error}; give the option "
            "valueSchema, or a schema to the query"
        ) from error


def _json_columns(topic: TopicInfo, page: SchemaPage) -> str:
    return topic.settings.get(VALUE_SCHEMA) or schema_as_setting(page)


def schema_as_setting(page: SchemaPage) -> str:
    """The newest version of a topic's schema as the setting would say it; empty if it cannot."""
    if not page.versions:
        return ""
    schema = read_schema(page.versions[-1].schema)
    columns = {column.name: column.type.text for column in schema.columns}
    if schema.format is not SchemaFormat.JSON or not TYPES.keys() >= {*columns.values()}:
        return ""
    text = json.dumps(columns)
    return text if len(text) <= TEXT_CHARACTERS else ""


def _is_read(selection: TopicSelection, topic: str) -> bool:
    if selection.pattern is None:
        return topic in selection.topics
    return re.fullmatch(selection.pattern, topic) is not None


def common_schema(settings: Mapping[str, str]) -> str | None:
    """The one schema of topics with these settings, as SQL; None if they have none. Raises
    BadOption.
    """
    parsed = {topic: parse_schema(text) for topic, text in settings.items()}
    return _common(
        {
            topic: [(name, TYPES[kind]) for name, kind in schema.items()]
            for topic, schema in parsed.items()
        },
        VALUE_SCHEMA,
    )


Columns = Sequence[tuple[str, str]]
"""Names, and Spark's types."""


def _common(columns: Mapping[str, Columns], what: str) -> str | None:
    """The columns of all topics. Raises BadOption."""
    if not any(columns.values()):
        return None
    first = min(columns)
    for topic in sorted(columns):
        if list(columns[topic]) != list(columns[first]):
            raise BadOption(
                f"the topics {first} and {topic} differ in their {what}: give valueSchema, or a "
                "schema to the query"
            )
    return ", ".join(f"{_quoted(name)} {kind}" for name, kind in columns[first])


def columns_of(page: SchemaPage, formats: Sequence[SchemaFormat] = ANY) -> Columns:
    """Those of the newest version of a topic's schema; none if that has another format, or a type
    that Spark has not.
    """
    if not page.versions:
        return []
    schema = read_schema(page.versions[-1].schema)
    found = [(column.name, spark_type(column.type)) for column in schema.columns]
    is_whole = schema.format in formats and all(kind for _, kind in found)
    return [(name, kind) for name, kind in found if kind] if is_whole else []


def spark_type(kind: ColumnType) -> str | None:
    """Spark's type of a column, if it has one that loses nothing."""
    if kind.item is not None:
        item = spark_type(kind.item)
        return item and f"ARRAY<{item}>"
    match kind.kind:
        case TypeKind.TIMESTAMP:
            zoned = "TIMESTAMP" if kind.zone else "TIMESTAMP_NTZ"
            return None if kind.unit == "ns" else zoned
        case TypeKind.DECIMAL:
            return f"DECIMAL({kind.precision},{kind.scale})"
    return {**TYPES, **_WIDER}.get(kind.text)


_WIDER = {
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "binary": "BINARY",
}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
