"""Planted bugs in what administrators set over the Kafka protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jwt

from samelog.format import recompression
from samelog.kafka.access import acls
from samelog.kafka.access.acls import AclDecisions, AclOperation, AclPermission, AclResource
from samelog.kafka.clients import tokens
from samelog.kafka.clients.sasl import ScramExchange
from samelog.sequencer.raft.proposer import Proposer
from samelog.sequencer.state.commands import decode_commands
from samelog.sequencer.state.tables import access
from samelog.sequencer.state.tables.access import AccessTable, AclBinding, ChangeAcls


@contextmanager
def forget_denials() -> Iterator[None]:
    """What one ACL denies another may allow."""
    original = acls.decision

    def decision(given: Sequence[AclBinding], *asked: Any) -> bool | None:
        return original([acl for acl in given if acl.permission != AclPermission.DENY], *asked)

    with patch.object(acls, "decision", decision):
        yield


@contextmanager
def decide_once() -> Iterator[None]:
    """What ACLs allowed once they allow for ever."""

    def decision(
        self: AclDecisions,
        client: tuple[str, str],
        operation: AclOperation,
        resource: tuple[AclResource, str],
    ) -> bool | None:
        question = (client, operation, resource)
        if question not in self._decided:
            who = acls.principal_of(client[0]), client[1]
            self._decided[question] = acls.decision(self._access().acls, who, operation, resource)
        return self._decided[question]

    with patch.object(AclDecisions, "decision", decision):
        yield


@contextmanager
def users_before_files() -> Iterator[None]:
    """A user has the password that was set over the protocol, whatever the node's file says."""
    original = ScramExchange._find

    def find(self: ScramExchange) -> Any:
        passwords: Mapping[str, str] = self._passwords
        if self._others(self._name, self._mechanism) is not None:
            self._passwords = {}
        found = original(self)
        self._passwords = passwords
        return found

    with patch.object(ScramExchange, "_find", find):
        yield


@contextmanager
def believe_any_audience() -> Iterator[None]:
    """A token lets in whom it names, whomever it was made for."""
    original = jwt.decode

    def decode(token: str, key: Any, *, audience: str, options: Any, **how: Any) -> Any:
        wanted = [name for name in options["require"] if name != "aud"]
        return original(token, key, options={"require": wanted, "verify_aud": False}, **how)

    with patch.object(jwt, "decode", decode):
        yield


@contextmanager
def keys_of_any_kind() -> Iterator[None]:
    """A shared secret that stands among the issuer's keys signs tokens."""
    with patch.object(tokens, "_FAMILIES", ("RSA", "EC", "OKP", "oct")):
        yield


@contextmanager
def add_what_has_no_room() -> Iterator[None]:
    """A command that is refused has changed something already."""
    original = access._CHANGES[ChangeAcls]

    def change(access: AccessTable, command: ChangeAcls) -> Any:
        access.acls = [acl for acl in access.acls if acl not in command.remove]
        return original(access, command)

    with patch.dict(access._CHANGES, {ChangeAcls: change}):
        yield


@contextmanager
def believe_a_leader_that_is_behind() -> Iterator[None]:
    """What is too early for a leader that has yet to apply the level is refused for good."""
    original = Proposer._served

    async def served(self: Proposer, data: bytes) -> tuple[int | None, list[Any]]:
        commands = decode_commands(data)
        if commands and (refusal := self._too_early(commands)) is not None:
            return 0, [refusal] * len(commands)
        return await original(self, data)

    with patch.object(Proposer, "_served", served):
        yield


@contextmanager
def old_crc_for_new_bytes() -> Iterator[None]:
    """A recompressed batch keeps the CRC that its producer wrote."""
    original = recompression.recompressed

    def recompressed(batch: memoryview, *how: Any) -> bytes:
        made = original(batch, *how)
        return made[:17] + bytes(batch[17:21]) + made[21:]

    with patch.object(recompression, "recompressed", recompressed):
        yield


_KAFKA, _SEQUENCER = "tests/kafka/", "tests/sequencer/"
GRANTING = (
    ("kafka.3", forget_denials, _KAFKA + "test_acls.py::test_what_allows_reading"),
    (
        "kafka.3",
        decide_once,
        _KAFKA + "test_acls.py::test_decisions_follow_changes_and_identities_are_users",
    ),
    ("kafka.3", users_before_files, _KAFKA + "test_sasl.py::test_a_file_goes_before_what_was_set"),
    (
        "kafka.3",
        add_what_has_no_room,
        _SEQUENCER + "test_access_state.py::test_too_many_change_nothing",
    ),
    (
        "raft.12",
        believe_a_leader_that_is_behind,
        _SEQUENCER
        + "test_proposer.py::test_a_leader_that_has_yet_to_apply_the_level_is_asked_again",
    ),
    (
        "operations.4",
        believe_any_audience,
        _KAFKA + "test_tokens.py::test_other_tokens_are_refused",
    ),
    ("operations.4", keys_of_any_kind, _KAFKA + "test_tokens.py::test_shared_secrets_are_no_keys"),
    (
        "logs.6",
        old_crc_for_new_bytes,
        _KAFKA + "test_recompression.py::test_only_the_codec_the_length_and_the_crc_change",
    ),
)
"""Rule, bug, and the test that finds it."""
