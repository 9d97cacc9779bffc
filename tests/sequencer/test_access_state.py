"""Commands about ACLs, users, quotas and settings of groups."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import AnyCommand, decode_commands, encode_commands
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables import access
from samelog.sequencer.state.tables.access import (
    AccessCommand,
    AclBinding,
    AlterGroup,
    ChangeAcls,
    ChangeQuotas,
    ChangeUsers,
    QuotaChange,
    ScramCredential,
)


def acl(name: str, permission: int = 3) -> AclBinding:
    return AclBinding(2, name, 3, "User:ann", "*", 3, permission)


def credential(user: str, salt: bytes = b"salt", mechanism: int = 1) -> ScramCredential:
    return ScramCredential(user, mechanism, 4096, salt, b"stored", b"server")


COMMANDS: list[AccessCommand] = [
    ChangeAcls([acl("a"), acl("b"), acl("a")], []),
    ChangeAcls([acl("c")], [acl("a"), acl("nobody")]),
    ChangeUsers([credential("ann"), credential("ann", mechanism=2), credential("bob")], []),
    ChangeUsers([credential("ann", b"pepper")], [("bob", 1), ("ann", 2), ("eve", 1)]),
    ChangeQuotas([QuotaChange("ann", "producer_byte_rate", 5), QuotaChange(None, "x", 7)]),
    ChangeQuotas([QuotaChange("ann", "producer_byte_rate", None), QuotaChange(None, "x", 8)]),
    AlterGroup("g", {"a": "1", "b": "2"}, []),
    AlterGroup("g", {"a": "3"}, ["b", "c"]),
    AlterGroup("h", {"a": "3"}, []),
    AlterGroup("h", {}, ["a"]),
]


@pytest.fixture
def machine() -> StateMachine:
    """All commands are applied, each twice, as when nobody knew what became of the first."""
    made = StateMachine()
    for command in COMMANDS:
        made.apply(command)
        made.apply(command)
    return made


def test_they_survive_encoding() -> None:
    commands: list[AnyCommand] = list(COMMANDS)
    assert decode_commands(encode_commands(commands)) == commands


def test_what_is_added_and_taken_away(machine: StateMachine) -> None:
    access = machine.state.access
    assert access.acls == [acl("b"), acl("c")]
    assert access.credentials == {"ann": {1: credential("ann", b"pepper")}}
    assert access.quotas == {"": {"x": 8}}
    assert access.groups == {"g": {"a": "3"}}
    assert access.version == 2 * len(COMMANDS)
    assert StateMachine.decode(machine.encode()).state == machine.state


def test_a_snapshot_from_before_has_none_of_it() -> None:
    old = StateMachine()
    assert StateMachine.decode(old.encode()).state.access == access.AccessTable()


@pytest.mark.parametrize(
    "command",
    [
        ChangeAcls([acl("x"), acl("y")], [acl("c")]),
        ChangeUsers([credential("x"), credential("y")], []),
        ChangeQuotas([QuotaChange("x", "k", 1), QuotaChange("y", "k", 1)]),
        AlterGroup("x", {"a": "1"}, []),
    ],
)
def test_too_many_change_nothing(machine: StateMachine, command: AccessCommand) -> None:
    """And what is there can still be changed."""
    most = 1 if isinstance(command, AlterGroup) else 2
    before = machine.encode()
    with patch.object(access, "ENTRIES_MAX", most):
        outcome = machine.apply(command)
        assert isinstance(outcome, Rejection)
        assert outcome.code == "TOO_MANY"
        assert machine.encode() == before
        for again in COMMANDS[1::2]:
            machine.apply(again)
    assert machine.state.access.acls == [acl("b"), acl("c")]
