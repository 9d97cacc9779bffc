"""What follows from values and their annotations in other formats: TOML files, JSON Schema.

Invariant: loading what is rendered gives an equal value; what the loader takes, the schema takes
too. What depends on more than one key only the loader checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    Inlined,
    NamedKeys,
    Subtable,
    TableSpec,
    annotations_of,
    joined,
)
from samelog.config.schema.kinds import PlainValue

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(config: ConfigTable) -> str:
    """The TOML text of a configuration, for clusters that the command line sets up itself."""
    return "\n".join(_tables("", "", config))


def toml_lines(values: Mapping[str, PlainValue]) -> str:
    """Keys with their values."""
    return "".join(f"{_toml_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value: PlainValue) -> str:
    """A TOML value. JSON's texts, numbers, booleans and lists are TOML's too, but for an unescaped
    DEL.
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else toml_value(name)


def _tables(path: str, header: str, config: ConfigTable) -> Iterator[str]:
    """The text of a table, then those of the tables in it."""
    own, flat = _keys(config)
    if own or header:
        yield header + toml_lines(own)
    for name, values in flat.items():
        yield f"[{joined(path, name)}]\n{toml_lines(values)}"
    for mark in annotations_of(type(config)):
        inside, value = joined(path, mark.attribute), getattr(config, mark.attribute)
        match mark:
            case Subtable(is_many=True):
                for each in value:
                    yield from _tables(inside, f"[[{inside}]]\n", each)
            case Subtable() if value is not None:
                yield from _tables(inside, f"[{inside}]\n", value)
            case NamedKeys(key=key) if value:
                named = {name: key.kind.write(each) for name, each in value.items()}
                yield f"[{inside}]\n{toml_lines(named)}"


def _keys(config: ConfigTable) -> tuple[dict[str, PlainValue], dict[str, dict[str, PlainValue]]]:
    """The keys of a table; by name those of tables that have no value of their own."""
    own: dict[str, PlainValue] = {}
    flat: dict[str, dict[str, PlainValue]] = {}
    for mark in annotations_of(type(config)):
        value = getattr(config, mark.attribute)
        match mark:
            case ConfigKey(table=table, name=name) if mark.is_written(config):
                into = own if table is None else flat.setdefault(table.name, {})
                into[name] = mark.kind.write(value)
            case Inlined():
                inner, elsewhere = _keys(value)
                own |= inner
                for name, keys in elsewhere.items():
                    flat.setdefault(name, {}).update(keys)
    return own, flat


def json_schema(spec: TableSpec, title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of file, for editors that check TOML by it."""
    return {"$schema": _DIALECT, "title": title, **_table_schema(spec)}


def _table_schema(spec: TableSpec) -> dict[str, Any]:
    properties = {name: _key_schema(key) for name, key in spec.keys.items()}
    for name, table in spec.tables.items():
        inside = _table_schema(table)
        properties[name] = {"type": "array", "items": inside} if table.is_many else inside
    found: dict[str, Any] = {
        "type": "object",
        "description": spec.meaning,
        "properties": properties,
        "additionalProperties": False if spec.named is None else _key_schema(spec.named),
    }
    required = [name for name, key in spec.keys.items() if key.is_required]
    return found | ({"required": required} if required else {})


def _key_schema(key: ConfigKey) -> dict[str, Any]:
    found = {**key.kind.json_schema, "description": key.meaning}
    return found if key.file_default is None else found | {"default": key.file_default}
