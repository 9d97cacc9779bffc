"""/openapi.json, made from the routes (OpenAPI 3.1).

Invariant: a route that is served is described, with everything that it may answer.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

import samelog
from samelog.admin.table import Operation, WhoMayAsk
from samelog.http.answer_schemas import REFERENCE, AnswerSchemas, JsonSchema
from samelog.http.problem import CONTENT_TYPE
from samelog.http.routes import HttpApi, PlainText

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


def openapi(api: HttpApi) -> dict[str, Any]:
    """The OpenAPI document of a process's routes."""
    schemas = AnswerSchemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in api.routes:
        row = route.operation
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
        schemas.named |= nested_schemas(row)
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
