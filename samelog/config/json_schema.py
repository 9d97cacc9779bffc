"""The table of keys as JSON Schema (2020-12), for editors that check TOML by it.

Invariant: what the loader takes, the schema takes too; what depends on more than one key only the
loader checks.
"""

from __future__ import annotations

from typing import Any

from samelog.config.schema import Key, Kind, Schema, Section, children

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: dict[Kind, dict[str, Any]] = {
    Kind.TEXTS: {"type": "array", "items": {"type": "string", "minLength": 1}},
    Kind.BOOLEAN: {"type": "boolean"},
}
_SIZE_TEXT = {"type": "string", "pattern": r"^\d+ ?([kMGTP]|[KMGTP]i)?$"}


def json_schema(tables: Schema, title: str) -> dict[str, Any]:
    """The schema of one kind of file."""
    return {"$schema": DIALECT, "title": title, **_table(tables, tables[""])}


def _table(tables: Schema, section: Section) -> dict[str, Any]:
    properties = {name: _key(key) for name, key in section.keys.items()}
    for child in children(tables, section.name):
        inside = _table(tables, child)
        properties[child.name.rpartition(".")[2]] = (
            {"type": "array", "items": inside} if child.many else inside
        )
    found: dict[str, Any] = {
        "type": "object",
        "description": section.meaning,
        "properties": properties,
        "additionalProperties": _key(section.anything) if section.anything else False,
    }
    required = [name for name, key in section.keys.items() if key.is_required]
    return found | ({"required": required} if required else {})


def _key(key: Key) -> dict[str, Any]:
    found = {**_value(key), "description": key.meaning}
    return found if key.default is None else found | {"default": key.plain_default}


def _value(key: Key) -> dict[str, Any]:
    bounds = {"minimum": key.least, "maximum": key.most}
    match key.kind:
        case Kind.INTEGER:
            return {"type": "integer", **bounds}
        case Kind.SECONDS:
            return {"type": "number", **bounds}
        case Kind.SIZE:
            return {"anyOf": [{"type": "integer", **bounds}, _SIZE_TEXT]}
        case Kind.CHOICE:
            return {"enum": list(key.names)}
    return _TYPES.get(key.kind, {"type": "string", "minLength": 1})
