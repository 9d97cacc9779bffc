"""A cluster that says what a test wants it to say of one topic's schema."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from samelog.admin.answers import SchemaInfo, SchemaPage
from samelog.admin.requests import AdminRequest, ListSchemas
from samelog.http.routes import HttpProblem
from samelog.typed.schema import parse_schema
from tests.cli.fake_nodes import Answer, FakeCluster


def schema_text(*columns: str, value_format: str = "json") -> str:
    """A schema of columns such as `a int64`."""
    fields = [dict(zip(("name", "type"), column.split(" "), strict=True)) for column in columns]
    return json.dumps({"format": value_format, "columns": fields})


class Known:
    """What the cluster says of topic `t`; it knows no other one."""

    def __init__(self, cluster: FakeCluster, *texts: str) -> None:
        self.texts = list(texts)
        self.topic_id = "id-1"
        self.since: tuple[tuple[int, int], ...] = ((0, 1),)
        self.next_offsets = [1 << 40]
        """What the nodes say one after the other; the last for ever."""
        self.asked = 0
        self.enforce = "off"
        for node in cluster.nodes:
            node.answer = self._answer

    def _answer(self, request: AdminRequest[Any]) -> Answer:
        assert isinstance(request, ListSchemas)
        if request.topic != "t":
            return HttpProblem(HTTPStatus.NOT_FOUND, "no such topic", code="unknown_topic")
        self.asked += 1
        rest = self.next_offsets
        next_offset = rest.pop(0) if len(rest) > 1 else rest[0]
        schemas = [parse_schema(text) for text in self.texts]
        found = tuple(
            SchemaInfo(number, 1_000, schema.fingerprint, schema.text)
            for number, schema in enumerate(schemas, 1)
        )
        return SchemaPage(
            "t",
            "backward",
            len(found),
            found,
            more=False,
            since=tuple(pair for pair in self.since if pair[0] < next_offset),
            topic_id=self.topic_id,
            next_offset=next_offset,
            enforce=self.enforce,
        )
