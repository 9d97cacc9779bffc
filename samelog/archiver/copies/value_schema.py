"""What the values of a topic are, if somebody has said so: JSON objects with fields of these types.

The setting is a JSON object too, `{"carrier": "string", "dep_delay": "int32"}`; types have Arrow's
names. Pure.

Invariant: a schema that was read has at least one field, and types that are known here.
"""

from __future__ import annotations

import json

VALUE_SCHEMA = "value_schema"
"""The topic setting."""
TYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
    "string",
    "date32",
    "timestamp[ms]",
)
FIELDS_MOST = 1000
TEXT_CHARACTERS = 32 << 10


def parse_schema(text: str) -> dict[str, str]:
    """Field -> type, in order; empty for an empty text: nobody has said anything. Raises
    ValueError.
    """
    if not text:
        return {}
    if len(text) > TEXT_CHARACTERS:
        raise ValueError(f"is longer than {TEXT_CHARACTERS} characters")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(found, dict) or not 0 < len(found) <= FIELDS_MOST or "" in found:
        raise ValueError('is not an object of fields and types, as in {"price": "float64"}')
    for name, kind in found.items():
        if kind not in TYPES:
            raise ValueError(f"{name!r} is {kind!r}; types are {', '.join(TYPES)}")
    return found
