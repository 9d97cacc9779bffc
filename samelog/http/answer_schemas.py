"""JSON Schemas of what is answered, from the types themselves: `samelog.wire.plain.to_json` of a
value fits the schema of its type.

Named tuples and structs become schemas of their own under their names, as OpenAPI wants them.
Invariant: one name stands for one type.
"""

from __future__ import annotations

import types
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

JsonSchema = dict[str, Any]
REFERENCE = "#/components/schemas/"
SIMPLE: dict[Any, JsonSchema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    Any: {},
}


class AnswerSchemas:
    """The schemas met so far."""

    def __init__(self) -> None:
        self.named: dict[str, JsonSchema] = {}
        self._types: dict[str, type] = {}

    def of(self, kind: Any) -> JsonSchema:
        """The schema of a type. Raises TypeError for one that answers do not have."""
        if kind in SIMPLE:
            return SIMPLE[kind]
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:  # its bounds are for what comes in
            return self.of(arguments[0])
        if origin in (Union, types.UnionType):
            return self._union(arguments)
        if origin in (tuple, list):
            return self._array(arguments)
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(arguments[1])}
        return self._class(kind)

    def _class(self, kind: Any) -> JsonSchema:
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [each.value for each in kind]}
        if isinstance(kind, type) and hasattr(kind, "__annotations__"):
            return self._object(kind)
        raise TypeError(f"no schema for {kind!r}")

    def _union(self, arguments: tuple[Any, ...]) -> JsonSchema:
        kinds = [self.of(each) for each in arguments if each is not type(None)]
        if type(None) in arguments:
            kinds.append({"type": "null"})
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}

    def _array(self, arguments: tuple[Any, ...]) -> JsonSchema:
        if len(arguments) == 2 and arguments[1] is not Ellipsis:
            kinds = [self.of(each) for each in arguments]
            return {"type": "array", "prefixItems": kinds, "minItems": 2, "maxItems": 2}
        return {"type": "array", "items": self.of(arguments[0])}

    def _object(self, kind: type) -> JsonSchema:
        name = kind.__name__
        if self._types.setdefault(name, kind) is not kind:
            raise TypeError(f"two types are called {name}")
        if name not in self.named:
            self.named[name] = {}  # so that a type may hold itself
            hints = get_type_hints(kind, include_extras=True)
            fields = _fields(kind)
            self.named[name] = {
                "type": "object",
                "description": " ".join((kind.__doc__ or "").split()),
                "properties": {field: self.of(hints[field]) for field in fields},
                "required": list(fields),
            }
        return {"$ref": REFERENCE + name}


def _fields(kind: type) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    found: tuple[str, ...] = getattr(kind, "_fields")  # noqa: B009 - of a named tuple
    return found
