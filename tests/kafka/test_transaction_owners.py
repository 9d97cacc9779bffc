"""A transactional id is for its owner, identities that an ACL allows it, and administrators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from samelog.kafka.access.acls import AclOperation, AclPattern, AclPermission, AclResource
from samelog.kafka.any_broker import KafkaClient
from samelog.kafka.codec.error_codes import ErrorCode
from samelog.kafka.transactions import admin_apis, producer_apis
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.access import AclBinding, ChangeAcls
from tests.kafka.test_creating_together import call_to
from tests.sequencer.cluster import RunWith, leader_of

DENIED = ErrorCode.transactional_id_authorization_failed


def acl(user: str, permission: AclPermission) -> AclBinding:
    """About WRITE on the transactional id `x`."""
    about = AclResource.TRANSACTIONAL_ID, "x", AclPattern.LITERAL
    return AclBinding(*about, f"User:{user}", "*", AclOperation.WRITE, permission)


async def init(call: Any, user: str) -> ErrorCode:
    """What InitProducerId answers a user."""
    handle: Any = producer_apis.init_producer_id.handle
    request = SimpleNamespace(transactional_id="x", transaction_timeout_ms=1000)
    answer = await handle(called_by(call, user), request)
    return ErrorCode(answer.error_code)


async def end(call: Any, user: str) -> ErrorCode:
    """What EndTxn answers a user."""
    known = call.broker.transactions.known.by_id["x"]
    handle: Any = producer_apis.end_txn.handle
    request = SimpleNamespace(
        transactional_id="x",
        producer_id=known.producer_id,
        producer_epoch=known.epoch,
        committed=False,
    )
    return ErrorCode((await handle(called_by(call, user), request)).error_code)


async def described(call: Any, user: str) -> ErrorCode:
    """What DescribeTransactions answers a user."""
    handle: Any = admin_apis.describe_transactions.handle
    answer = await handle(called_by(call, user), SimpleNamespace(transactional_ids=["x"]))
    return ErrorCode(answer.transaction_states[0].error_code)


def called_by(call: Any, user: str) -> Any:
    return replace(call, client=KafkaClient(f"samelog://user/{user}", "l", "h"))


def test_an_id_is_its_owners_unless_acls_say_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        node = await leader_of(nodes)
        call, rights = call_to(node), node.member.rights
        await node.raft.proposer.until_begun()
        monkeypatch.setattr(rights, "may_push", lambda who, _: not who.endswith("/eve"))
        monkeypatch.setattr(rights, "is_admin", lambda who: who.endswith("/root"))
        assert await init(call, "eve") is DENIED
        assert await init(call, "ann") is ErrorCode.none
        denied = await init(call, "bob"), await end(call, "bob"), await described(call, "bob")
        for tried in denied:
            assert tried is DENIED
        assert await end(call, "ann") is not DENIED
        assert await described(call, "ann") is ErrorCode.none
        assert await init(call, "root") is ErrorCode.none
        allow, deny = acl("bob", AclPermission.ALLOW), acl("ann", AclPermission.DENY)
        await node.raft.proposer.propose(ChangeAcls([allow, deny], []))
        assert await init(call, "bob") is ErrorCode.none
        assert await init(call, "ann") is DENIED

    run_with(tmp_path, 1, body)
