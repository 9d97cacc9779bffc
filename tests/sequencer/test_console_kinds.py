"""What a console is told of views, mirrors, keys and internal topics of a real node."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from samelog.admin.requests import GetAccess, PeekRecords
from samelog.admin.views import AclRow
from samelog.http.console.look import look
from samelog.kafka.access.acls import AclOperation, AclPattern, AclPermission, AclResource
from samelog.sequencer.admin import access
from samelog.sequencer.admin.records import peek_records
from samelog.sequencer.cluster.changes import ChangeRefused
from samelog.sequencer.levels import SUPPORTED
from samelog.sequencer.node import Node
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand
from samelog.sequencer.state.tables.access import AclBinding, ChangeAcls
from samelog.sequencer.state.tables.groups import CommitOffsets, CommittedOffset
from samelog.sequencer.state.tables.mirror_source import MirrorSource
from samelog.sequencer.state.tables.mirrors import PromoteMirrors
from samelog.sequencer.state.tables.sites import AddSite
from samelog.sequencer.state.tables.topics import CreateTopicCommand
from samelog.sequencer.state.tables.views import CreateViewCommand
from samelog.wire.errors import FaultCode
from tests.keys.test_key_filter import batch
from tests.sequencer.cluster import RunWith, Session, leader_of, offset, until

SOURCE = MirrorSource("there", "quotes", "log", ["there"], keeps_epochs=True)
VIEW = CreateViewCommand("a" * 32, "big", "t" * 32, "key > 'b'", [], 0, {}, "", "owner", 1)


def test_topics_that_are_no_plain_logs_are_told(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        await until(lambda: node.raft.replica.machine.state.members.level == SUPPORTED, "the level")
        await propose(node, CreateTopicCommand("t" * 32, "t", 1, {"dedup.key": "first"}, 1))
        await propose(node, VIEW)
        await propose(node, CreateTopicCommand("b" * 32, "us.quotes", 2, {}, 7, source=SOURCE))
        await propose(node, AddSite("nyc", votes=True, at_ms=1))
        await propose(node, CommitOffsets([("g", [(1, CommittedOffset(0, -1, "", 9))])]))
        await Session("s").send(nodes, batch(b"x", b"y", b"x"))
        await until(lambda: offset(node) == 2, "the records")
        await until(lambda: node.care.keys.reach(1).covered_to == 2, "the keys")
        await check(node)
        await check_records(node)
        await check_access(node)
        await propose(node, PromoteMirrors(["b" * 32], 11, "somebody"))
        mirror = (await look(node, dict))["mirrors"]["us.quotes"]
        assert (mirror["promoted_ms"], mirror["ends"]) == (11, [0, 0])

    run_with(tmp_path, 1, body)


async def propose(node: Node, command: AnyCommand) -> None:
    outcome = await node.raft.proposer.propose(command)
    assert not isinstance(outcome, Rejection), outcome


async def check_records(node: Node) -> None:
    """Of a view what passes, for who may read it, while its owner may read the base."""
    peer = f"samelog://node/{node.member.config.name}"
    later = {"topic_id": "c" * 32, "name": "later", "where": "_offset >= 1", "owner": peer}
    await propose(node, structs.replace(VIEW, **later))
    page = await peek_records(node, PeekRecords("later"), peer)
    assert [(each.offset, each.key) for each in page.records] == [(1, b"y")]
    assert (page.start_offset, page.end_offset, page.next_offset) == (0, 2, 2)
    page = await peek_records(node, PeekRecords("later", key="x"), peer)
    assert (page.records, page.next_offset) == ((), 2)
    for name, identity in (("big", peer), ("later", "samelog://user/x")):
        with pytest.raises(ChangeRefused) as refused:
            await peek_records(node, PeekRecords(name), identity)
        assert refused.value.code is FaultCode.NOT_AUTHORISED


async def check_access(node: Node) -> None:
    rule = AclResource.TOPIC, "t", AclPattern.PREFIXED, "User:ann", "*", AclOperation.READ
    await propose(node, ChangeAcls([AclBinding(*rule, AclPermission.ALLOW)], []))
    found = (await access.get_access(node, GetAccess())).acls
    assert found == (AclRow("User:ann", "*", "topic", "t", True, "read", True),)


def test_acls_are_told_in_kafkas_words() -> None:
    for names, kinds in ((access.RESOURCES, AclResource), (access.OPERATIONS, AclOperation)):
        assert names == tuple(each.name.lower().replace("_", " ") for each in kinds)
        assert int(next(iter(kinds))) == access.FIRST
    assert (access.PREFIXED, access.ALLOWED) == (AclPattern.PREFIXED, AclPermission.ALLOW)


async def check(node: Node) -> None:
    found = await look(node, dict)
    view, mirror = found["views"]["big"], found["mirrors"]["us.quotes"]
    assert (view["base"], view["query"]) == ("t", "SELECT * FROM t WHERE key > 'b'")
    assert (mirror["source_topic"], mirror["partitions"], mirror["promoted_ms"]) == (
        "quotes",
        2,
        -1,
    )
    assert "us.quotes" in found["topics"], "a mirror is a topic, too"
    assert "big" not in found["topics"], "a view stores nothing"
    keys = found["keys"]["t/0"]
    assert (keys["floor"], keys["end_offset"], keys["covered_to"], keys["trouble"]) == (0, 2, 2, "")
    feeds = found["internal"]["__consumer_offsets"]["feeds"]
    assert [(each["end_offset"], each["keys"]) for each in feeds] == [(1, 1)]
    assert "__transaction_state" not in found["internal"], "nothing is in it"
    assert found["waiting"] == {"t": {"topic": "t", "bytes": 0}}
    assert found["sites"]["nyc"]["members"] == []
