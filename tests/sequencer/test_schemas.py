"""Schemas on nodes: what administrators ask for is committed, and every node has it."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from samelog.admin.requests import AlterTopic, CreateTopic, ListSchemas, SetSchema
from samelog.config.authorisation import ANONYMOUS
from samelog.sequencer.admin import schemas
from samelog.sequencer.admin.handlers import answer
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.judging import libraries
from samelog.sequencer.levels import SUPPORTED
from samelog.sequencer.node import Node
from samelog.typed.schema import parse_schema
from samelog.wire.errors import FaultCode
from tests.sequencer.cluster import RunWith, Session, batch, offset, until

FIRST = '{"format": "json", "columns": [{"name": "a", "type": "int32"}]}'
SECOND = '{"format": "json", "columns": [{"name": "a", "type": "int64"}]}'
OTHER = '{"format": "json", "columns": [{"name": "a", "type": "string"}]}'


async def refused(asked: Awaitable[object]) -> FaultCode:
    with pytest.raises(ChangeRefused) as caught:
        await asked
    return caught.value.code


def test_versions_are_set_seen_and_kept_on_every_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0"))
        await until(lambda: all(level(node) == SUPPORTED for node in nodes), "schemas may be set")
        await until(lambda: offset(nodes[0]) == 1, "the record is merged")
        [topic] = [topic.name for topic in nodes[0].logs.machine.state.topics.by_id.values()]

        async def ask(node: Node, request: Any) -> Any:
            return await answer(node, request, ANONYMOUS)

        stranger = answer(nodes[0], ListSchemas(topic), "samelog://publisher/x")
        assert await refused(stranger) == FaultCode.NOT_AUTHORISED
        page = await ask(nodes[0], ListSchemas(topic))
        assert (page.newest, page.versions, page.more) == (0, (), False)
        for follows, text in enumerate([FIRST, SECOND]):
            done = await ask(nodes[follows], SetSchema(topic, text, follows))
            assert (done.version, done.fingerprint) == (follows + 1, parse_schema(text).fingerprint)
        for follows in (1, 2):  # once more; and nothing new
            assert (await ask(nodes[2], SetSchema(topic, SECOND, follows))).version == 2
        again = [ask(nodes[0], SetSchema(topic, text, 0)) for text in (OTHER, "{}")]
        assert [await refused(each) for each in again] == [
            *(FaultCode.ALREADY_EXISTS, FaultCode.OUT_OF_RANGE)
        ]
        assert await refused(ask(nodes[0], SetSchema(topic, OTHER, 2))) == FaultCode.OUT_OF_RANGE
        assert await refused(ask(nodes[0], SetSchema("x", OTHER, 0))) == FaultCode.UNKNOWN_TOPIC

        await until(lambda: all(newest(node) == 2 for node in nodes), "all have both")
        for node in nodes:
            page = await ask(node, ListSchemas(topic))
            assert (page.compatibility, page.newest, page.more) == ("backward", 2, False)
            assert [each.schema for each in page.versions] == [
                parse_schema(text).text for text in (FIRST, SECOND)
            ]
            since = (await ask(node, ListSchemas(topic, partition=0))).since
            assert since == ((1, 2),)
        assert await refused(ask(nodes[0], ListSchemas(topic, partition=7))) == (
            FaultCode.UNKNOWN_TOPIC
        )
        monkeypatch.setattr(schemas, "PAGE_BYTES", 1)
        pages = [await ask(nodes[0], ListSchemas(topic, version)) for version in (1, 2, 3)]
        assert [([v.version for v in page.versions], page.more) for page in pages] == [
            *(([1], True), ([2], False), ([], False))
        ]

    def level(node: Node) -> int:
        return node.logs.machine.state.members.level

    def newest(node: Node) -> int:
        [topic] = node.logs.machine.state.topics.by_id.values()
        return len(topic.schemas)

    run_with(tmp_path, 3, body)


def test_a_node_that_does_not_know_a_new_topic_yet_learns_of_it(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0"))
        states = [node.logs.machine.state for node in nodes]
        await until(
            lambda: all(state.members.level == SUPPORTED for state in states), "schemas may be set"
        )
        for number in range(10):
            topic, (maker, setter, reader) = f"new{number}", (nodes * 2)[number % 3 :][:3]
            await answer(maker, CreateTopic(topic, 1, {}), ANONYMOUS)
            page: Any = await answer(reader, ListSchemas(topic), ANONYMOUS)
            assert page.newest == 0
            done: Any = await answer(setter, SetSchema(topic, FIRST, 0), ANONYMOUS)
            assert done.version == 1

    run_with(tmp_path, 3, body)


def test_nodes_check_only_what_every_member_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        await Session("a").send(nodes, batch(b"0"))
        states = [node.logs.machine.state for node in nodes]
        await until(
            lambda: all(state.members.level == SUPPORTED for state in states), "schemas may be set"
        )
        monkeypatch.setattr(libraries, "lacking", lambda: ("fastavro",))
        told = [node.peers.presence.lacks for node in nodes]
        await until(lambda: all(len(each) == len(nodes) - 1 for each in told), "all have said so")
        monkeypatch.setattr(libraries, "lacking", lambda: ())
        make = CreateTopic("checked", 1, {"schema.enforce": "node"})
        await answer(nodes[0], make, ANONYMOUS)  # JSON takes no fastavro
        avro = SetSchema("checked", FIRST.replace("json", "avro"), 0)
        with pytest.raises(ChangeRefused, match=r"could not check records.* no fastavro"):
            await answer(nodes[0], avro, ANONYMOUS)
        await answer(nodes[0], SetSchema("checked", FIRST, 0), ANONYMOUS)
        for each in told:
            each.update(dict.fromkeys(each, ("pyarrow",)))
        with pytest.raises(ChangeRefused, match="it has no pyarrow"):
            await answer(nodes[0], CreateTopic("no", 1, {"schema.enforce": "node"}), ANONYMOUS)
        alter = AlterTopic("checked", {"schema.enforce": "node"}, ())
        with pytest.raises(ChangeRefused, match="it has no pyarrow"):
            await answer(nodes[0], alter, ANONYMOUS)
        off = AlterTopic("checked", {"schema.enforce": "publisher"}, ())
        await answer(nodes[0], off, ANONYMOUS)

    run_with(tmp_path, 3, body)
