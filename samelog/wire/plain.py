"""Values as what JSON has, and as its text.

Invariant: the shape follows from the type alone; `samelog.http.shapes` describes the same one.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any

import msgspec

from samelog.format.steps import StepWork


def to_json(value: Any) -> Any:
    """`value` as dicts, lists, texts and numbers; an IntEnum becomes its name in lower case, bytes
    base64.
    """
    match value:
        case IntEnum():
            return value.name.lower()
        case Enum():
            return to_json(value.value)
        case datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): to_json(item) for key, item in value.items()}
    fields = _fields(value)
    if fields is not None:
        return {name: to_json(item) for name, item in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return value


def encode_steps(value: Any) -> StepWork[str]:
    """Encode `to_json(value)` as text, one short piece a step."""
    parts: list[str] = []
    for part in _encoded(value):
        parts.append(part)
        yield
    return "".join(parts)


def _encoded(value: Any) -> Iterator[str]:
    """The pieces of a value's text. Containers are copied, since they may change between steps."""
    fields = dict(value) if isinstance(value, dict) else _fields(value)
    if fields:
        opening = "{"
        for name, item in fields.items():
            yield f"{opening}{json.dumps(str(name), ensure_ascii=False)}: "
            yield from _encoded(item)
            opening = ", "
        yield "}"
    elif isinstance(value, list | tuple | set | frozenset) and value and fields is None:
        opening = "["
        for item in tuple(value):
            yield opening
            yield from _encoded(item)
            opening = ", "
        yield "]"
    else:
        yield json.dumps(to_json(value), ensure_ascii=False)


def _fields(value: Any) -> dict[str, Any] | None:
    if isinstance(value, msgspec.Struct):
        known = msgspec.structs.asdict(value)
        return {name: item for name, item in known.items() if item is not msgspec.UNSET}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None
