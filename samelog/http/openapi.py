"""/openapi.json, made from the routes (OpenAPI 3.1).

The schemas are those of the types that are answered: `samelog.wire.plain.to_json` of a value fits
the schema of its type. Named tuples and structs have schemas under their own names.

Invariant: a route that is served is described, with everything that it may answer; one name stands
for one type.
"""

from __future__ import annotations

import types
from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

import samelog
from samelog.admin.table import Operation, WhoMayAsk
from samelog.format.steps import StepWork
from samelog.http.routes import CONTENT_TYPE, HttpApi, PlainText

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


VERSION = "3.1.0"
ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
OF_A_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
PROBLEM: JsonSchema = {
    "type": "object",
    "description": "RFC 9457; what else there is says more: code, remedy, leader, leader_address.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": {"type": "string"},
}


def openapi(api: HttpApi) -> StepWork[dict[str, Any]]:
    """Make the OpenAPI document of a process's routes, one route a step."""
    schemas = AnswerSchemas()
    paths: dict[str, dict[str, Any]] = {}
    for row in (each.operation for each in api.routes if not each.operation.for_browsers):
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
        schemas.named |= nested_schemas(row)
        yield
    return {
        "openapi": VERSION,
        "info": {"title": api.title, "version": samelog.__version__},
        "paths": paths,
        "components": {"schemas": {**schemas.named, "Problem": PROBLEM}},
    }


def _operation(row: Operation, schemas: AnswerSchemas) -> dict[str, Any]:
    request = request_schema(row)
    parameters = [
        {
            "name": name,
            "in": "path" if name in row.in_path else "query",
            "required": name in request["required"],
            "schema": schema,
        }
        for name, schema in request["properties"].items()
        if name in row.in_path or row.method == "GET"
    ]
    found: dict[str, Any] = {
        "operationId": row.name,
        "summary": row.summary,
        "description": f"May be asked by: {row.who_may.value}.",
        "parameters": parameters,
        "responses": _responses(row, schemas),
    }
    if row.method == "POST":
        found["requestBody"] = _body(row, request)
    return found


def request_schema(row: Operation) -> JsonSchema:
    """The schema of an operation's request, with `properties` and `required`."""
    found = _components(row)[row.request.__name__]
    return {**found, "required": found.get("required", [])}


def nested_schemas(row: Operation) -> dict[str, JsonSchema]:
    """The schemas of what stands in an operation's request, by name."""
    found = _components(row)
    del found[row.request.__name__]
    return found


def _components(row: Operation) -> dict[str, JsonSchema]:
    _, found = msgspec.json.schema_components([row.request], ref_template=REFERENCE + "{name}")
    return found


def _body(row: Operation, request: JsonSchema) -> dict[str, Any]:
    names = [name for name in request["properties"] if name not in row.in_path]
    schema = {
        "type": "object",
        "properties": {name: request["properties"][name] for name in names},
        "required": [name for name in names if name in request["required"]],
        "additionalProperties": False,
    }
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(row: Operation, schemas: AnswerSchemas) -> dict[str, Any]:
    if row.answer is PlainText:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": schemas.of(row.answer)}}
    told = {str(int(status)): _problem(status) for status in problems_of(row)}
    return {"200": {"description": "What was asked.", "content": content}, **told}


def problems_of(row: Operation) -> list[HTTPStatus]:
    """What else than success a request may come to."""
    body = OF_A_BODY if row.method == "POST" else ()
    known = {*ALWAYS, *body, *row.refusals}
    return sorted(known - ({HTTPStatus.FORBIDDEN} if row.who_may is WhoMayAsk.ANYBODY else set()))


def _problem(status: HTTPStatus) -> dict[str, Any]:
    schema = {"$ref": f"{REFERENCE}Problem"}
    return {"description": status.phrase, "content": {CONTENT_TYPE: {"schema": schema}}}
