"""docs/rest.md says what the routes say. `make docs` rewrites its tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from samelog.admin.table import Operation
from samelog.config.load import load_node
from samelog.format.steps import finished
from samelog.http.metrics.table import (
    COMMON,
    MIRROR,
    NODE,
    PUBLISHER,
    SIDECAR,
    SUBSCRIBER,
    Metric,
)
from samelog.http.node_api import NodeApi
from samelog.http.openapi import openapi, problems_of, request_schema
from samelog.http.routes import Route
from tests.config.test_kafka import load
from tests.tables import with_tables, write_tables

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
REST, METRICS = DOCS / "rest.md", DOCS / "metrics.md"


def routes(directory: Path) -> tuple[Route, ...]:
    """Those of a node."""
    return _api(directory).routes


def _api(directory: Path) -> NodeApi:
    return NodeApi(load_node(load(directory, "")), lambda: False)


def _fields(row: Operation) -> str:
    request = request_schema(row)
    fields = []
    for name, schema in request["properties"].items():
        text = schema.get("description", "")
        need = "" if name in request["required"] else " (may be left out)"
        fields.append(f"`{name}`{need}{': ' + text if text else ''}".rstrip("."))
    return "; ".join(fields) or "–"


def requests(api: NodeApi) -> str:
    """The routes as a table."""
    rows = ["| request | what | who may | fields | problems |", "|---|---|---|---|---|"]
    for row in (route.operation for route in api.routes):
        cells = [
            f"{row.method} `{row.path}`",
            row.summary,
            row.who_may.value,
            _fields(row),
            " ".join(str(int(status)) for status in problems_of(row)),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([*rows, ""])


def answers(api: NodeApi) -> str:
    """The answers of the routes, and the types in them."""
    document = finished(openapi(api))
    lines = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation["responses"]["200"]["content"]
            [schema] = [each["schema"] for each in content.values()]
            lines.append(f"- {method.upper()} `{path}`: {_type(schema)}")
    lines += ["", "| type | fields |", "|---|---|"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        properties = schema.get("properties")
        if properties is None:  # an array of so many
            fields = f"[{', '.join(map(_type, schema['prefixItems']))}]"
        else:
            fields = ", ".join(f"`{field}` {_type(kind)}" for field, kind in properties.items())
        lines.append(f"| **{name}**: {schema['description']} | {fields} |")
    return "\n".join([*lines, ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items', {'type': 'pair'}))}]"
    return str(schema.get("type", "anything"))


TABLES: dict[str, Callable[[NodeApi], str]] = {"the routes": requests, "the types": answers}


def tables(directory: Path) -> dict[str, str]:
    """Each table of the page."""
    api = _api(directory)
    return {source: table(api) for source, table in TABLES.items()}


def metrics(table: tuple[Metric, ...]) -> str:
    """Metrics as a table."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for each in table:
        labels = ", ".join(f"`{label}`" for label in each.labels) or "–"
        rows.append(f"| `{each.name}` | {each.kind.value} | {labels} | {each.help} |")
    return "\n".join([*rows, ""])


def metric_tables(directory: Path | None = None) -> dict[str, str]:
    """Each table of the page about metrics."""
    groups = {
        "common": COMMON,
        "node": NODE,
        "sidecar": SIDECAR,
        "publisher": PUBLISHER,
        "subscriber": SUBSCRIBER,
        "mirror": MIRROR,
    }
    return {f"the metrics, {name}": metrics(table) for name, table in groups.items()}


def test_the_pages_have_the_tables(tmp_path: Path) -> None:
    for page, made in ((REST, tables(tmp_path)), (METRICS, metric_tables())):
        text = page.read_text(encoding="utf-8")
        assert text == with_tables(text, made)


if __name__ == "__main__":
    write_tables(REST, tables)
    write_tables(METRICS, metric_tables)
