"""/openapi.json, made from the routes (OpenAPI 3.1).

Invariant: a route that is served is described, with everything that it may answer.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec

import samelog
from samelog.http.problem import CONTENT_TYPE
from samelog.http.routes import Access, Api, Route, Text
from samelog.http.shapes import REFERENCE, Schema, Shapes

VERSION = "3.1.0"
ALWAYS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
OF_A_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
PROBLEM: Schema = {
    "type": "object",
    "description": "RFC 9457; what else there is says more: code, remedy, leader.",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": {"type": "string"},
}


def openapi(api: Api) -> dict[str, Any]:
    """The document."""
    shapes = Shapes()
    paths: dict[str, dict[str, Any]] = {}
    for route in api.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, shapes)
    return {
        "openapi": VERSION,
        "info": {"title": api.title, "version": samelog.__version__},
        "paths": paths,
        "components": {"schemas": {**shapes.named, "Problem": PROBLEM}},
    }


def _operation(route: Route, shapes: Shapes) -> dict[str, Any]:
    asked = schema_of_asked(route)
    parameters = [
        {
            "name": name,
            "in": "path" if name in route.in_path else "query",
            "required": name in asked["required"],
            "schema": schema,
        }
        for name, schema in asked["properties"].items()
        if name in route.in_path or route.method == "GET"
    ]
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"May be asked by: {route.access.value}.",
        "parameters": parameters,
        "responses": _responses(route, shapes),
    }
    if route.method == "POST":
        operation["requestBody"] = _body(route, asked)
    return operation


def schema_of_asked(route: Route) -> Schema:
    """The schema of a route's struct, inlined, with `properties` and `required`."""
    schema = msgspec.json.schema(route.asked)
    found: Schema = schema["$defs"][route.asked.__name__]
    return {**found, "required": found.get("required", [])}


def _body(route: Route, asked: Schema) -> dict[str, Any]:
    names = [name for name in asked["properties"] if name not in route.in_path]
    schema = {
        "type": "object",
        "properties": {name: asked["properties"][name] for name in names},
        "required": [name for name in names if name in asked["required"]],
        "additionalProperties": False,
    }
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(route: Route, shapes: Shapes) -> dict[str, Any]:
    if route.answer is Text:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": shapes.of(route.answer)}}
    told = {str(int(status)): _problem(status) for status in problems_of(route)}
    return {"200": {"description": "What was asked.", "content": content}, **told}


def problems_of(route: Route) -> list[HTTPStatus]:
    """What else than success a request may come to."""
    body = OF_A_BODY if route.method == "POST" else ()
    known = {*ALWAYS, *body, *route.problems}
    return sorted(known - ({HTTPStatus.FORBIDDEN} if route.access is Access.ANYBODY else set()))


def _problem(status: HTTPStatus) -> dict[str, Any]:
    schema = {"$ref": f"{REFERENCE}Problem"}
    return {"description": status.phrase, "content": {CONTENT_TYPE: {"schema": schema}}}
