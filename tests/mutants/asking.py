"""Planted bugs in whom commands ask, and in what they make of the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from samelog.admin import client
from samelog.admin.answers import PartitionInfo, Status
from samelog.admin.client import AskedNode, known_nodes
from samelog.admin.requests import GetRaftStatus
from samelog.admin.views import RaftStatus
from samelog.cli.commands import group as group_command
from samelog.cli.commands.look import status
from samelog.config.tables.client import ClientConfig


@contextmanager
def ask_who_is_configured() -> Iterator[None]:
    """Of members that a client's configuration does not name, nobody hears."""
    with patch.object(client, "all_nodes", known_nodes):
        yield


@contextmanager
def ask_twice() -> Iterator[None]:
    """A configured node without a name there is asked again under the name that it has."""

    def all_nodes(config: ClientConfig) -> list[AskedNode]:
        known = known_nodes(config)
        told = client._ask_side_by_side(config, GetRaftStatus(), known, client.LEARN_S)
        names = {name for _, name in known}
        members = client._members([each for each in told if isinstance(each, RaftStatus)])
        return known + [each for each in members if each[1] not in names]

    with patch.object(client, "all_nodes", all_nodes):
        yield


@contextmanager
def follow_one_hop() -> Iterator[None]:
    """Who is sent on twice gives up."""
    with patch.object(client, "HOPS_MAX", 1):
        yield


@contextmanager
def show_what_one_has() -> Iterator[None]:
    """Partitions that the best informed node does not have are not shown."""

    def partitions_of(answers: Sequence[Status]) -> list[PartitionInfo]:
        best = max(answers, key=lambda answer: answer.commit_index)
        return list(best.partitions)

    with patch.object(status, "partitions_of", partitions_of):
        yield


@contextmanager
def reset_all_at_one_node() -> Iterator[None]:
    """One node is to set a group's offsets in partitions that others have."""

    def reset(config: ClientConfig, body: Any) -> None:
        client.ask(config, body)

    with patch.object(group_command, "_reset", reset):
        yield


_NAMED = "tests/cli/test_named_nodes.py::"
ASKING = (
    ("recovery.4", ask_who_is_configured, _NAMED + "test_everybody_is_asked_for_partitions"),
    ("recovery.4", ask_twice, _NAMED + "test_a_configured_node_goes_by_its_configuration"),
    ("recovery.4", follow_one_hop, _NAMED + "test_one_node_names_the_next"),
    ("recovery.4", show_what_one_has, _NAMED + "test_all_partitions_are_shown"),
    (
        "recovery.4",
        reset_all_at_one_node,
        _NAMED + "test_a_group_is_reset_where_the_partitions_are",
    ),
)
"""Rule, bug, and the test that finds it."""
