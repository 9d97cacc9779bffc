"""Rounds of archiving by policy, on whole nodes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from samelog.archiver.policy_file import PolicyFile
from samelog.sequencer.admin.status import trouble
from samelog.sequencer.node import Node
from samelog.sequencer.state.machine import StateMachine
from samelog.sequencer.state.tables.topics import AlterTopicCommand
from samelog.store.disk.files import OsFileSystem
from tests.archiver.test_truncation import BATCH, is_archived, sizes, write
from tests.sequencer.cluster import RunWith, Session, leader_of, until

TOPIC = "0" * 32


def policy_of(node: Node, path: Path, text: str) -> None:
    """Give a running node a policy file."""
    path.write_text(text)
    node.care.archive.policy.path = str(path)
    node.care.archive.policy.load()


def start(node: Node) -> int:
    return node.raft.replica.machine.state.partitions.by_number[1].log_start


async def until_planned(node: Node, *wanted: tuple[int, str]) -> None:
    """Wait until a round would archive this: (segment, reason) of each partition."""

    def planned() -> bool:
        found = node.care.archive.rounds.plan().proposals
        return tuple((each.segment, each.reason) for each in found) == wanted

    await until(planned, f"planned: {wanted}")


async def alter(node: Node, **settings: str) -> None:
    await node.raft.proposer.propose(
        AlterTopicCommand(
            TOPIC, {key.replace("__", "."): value for key, value in settings.items()}, []
        )
    )


def test_the_limit_is_kept_everywhere(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 8)
        for node in nodes:
            assert node.care.archive.rounds.plan().proposals == []
            policy_of(node, tmp_path / "policy.json", json.dumps({"time": 0, "limit": 130_000}))
        leader = await leader_of(nodes)
        await until_planned(leader, (5, "limit"))
        [planned] = leader.care.archive.rounds.plan().proposals
        assert (planned.first, planned.segment, planned.files, planned.reason) == (0, 5, 5, "limit")
        assert planned.size == 5 * len(BATCH)
        assert start(leader) == 0  # planning does nothing
        await leader.care.archive.rounds.round()
        await until(lambda: all(is_archived(node, 5) for node in nodes), "archived")
        assert {sum(size for _, size in sizes(node)) for node in nodes} == {3 * len(BATCH)}
        assert leader.care.archive.rounds.plan().proposals == []

    run_with(tmp_path, 3, body)


def test_time_and_overrides_and_holds(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 6)
        leader = await leader_of(nodes)
        rounds = leader.care.archive.rounds
        for node in nodes:
            policy_of(node, tmp_path / "policy.json", '{"time": 5}')
        await until(lambda: len(leader.peers.presence.health) == 3, "health")
        assert rounds.plan().proposals == []
        await alter(leader, retention__bytes=str(3 * len(BATCH)))
        await until_planned(leader, (3, "retention.bytes"))
        await alter(leader, retention__bytes="-1", retention__ms="0")
        await until_planned(leader, (5, "time"))
        await alter(leader, hold_groups="billing")
        found = rounds.plan()
        assert (found.proposals, found.held) == ([], ["t-0"])
        await rounds.round()
        assert "consumer groups hold it: t-0" in trouble(leader)
        await alter(leader, hold_max_bytes=str(4 * len(BATCH)))
        await until_planned(leader, (2, "time"))

    run_with(tmp_path, 3, body)


def test_a_minority_archives_nothing(tmp_path: Path, run_with: RunWith) -> None:
    """What only the leader has merged durably stays, and its disk and clock alone are nothing."""

    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 5)
        leader = await leader_of(nodes)
        policy_of(leader, tmp_path / "policy.json", '{"time": 1, "limit": "64Ki", "disk": 1}')
        views = leader.raft.coordinator.views
        health = leader.peers.presence.health
        await until(lambda: len(health) == 3, "health")
        await until(lambda: bool(leader.care.archive.rounds.plan().proposals), "a plan")
        for number, view in views.items():
            if number != leader.peers.number:
                del health[number]
                view.merged_durable = {1: 2}
        [planned] = leader.care.archive.rounds.plan().proposals
        assert (planned.segment, planned.reason) == (2, "limit")

    run_with(tmp_path, 3, body)


@pytest.mark.parametrize("text", ["", "{", '{"time": -1}', '{"time": 1, "limit": 0}', "\x00"])
def test_a_bad_edit_keeps_the_policy_and_says_why(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.json"
    path.write_text('{"time": 7}')
    file = PolicyFile(OsFileSystem(), str(path))
    file.load()
    good = file.policy
    assert good is not None
    path.write_text(text)
    file.load()
    assert (file.policy, bool(file.problem)) == (good, True)
    assert str(path) in file.problem
    path.write_text('{"time": 8}')
    file.load()
    assert file.policy is not None
    assert (file.policy.time, file.problem) == (8, "")


def test_a_policy_behind_links_is_followed(tmp_path: Path) -> None:
    """As Kubernetes mounts ConfigMaps."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "policy.json").write_text('{"time": 7}')
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "policy.json").symlink_to("..data/policy.json")
    file = PolicyFile(OsFileSystem(), str(tmp_path / "policy.json"))
    file.load()
    assert file.problem == ""
    assert file.policy is not None
    assert file.policy.time == 7


def test_without_a_readable_file_there_is_no_policy(tmp_path: Path) -> None:
    for make in (lambda path: None, lambda path: path.mkdir(), os.mkfifo):
        path = tmp_path / f"policy-{len(list(tmp_path.iterdir()))}"
        make(path)
        file = PolicyFile(OsFileSystem(), str(path))
        file.load()
        assert file.policy is None
        assert file.problem


def test_state_of_an_older_version_has_no_time_of_rolls(tmp_path: Path, run_with: RunWith) -> None:
    async def body(nodes: list[Node]) -> None:
        await write(nodes, Session("a"), 4)
        leader = await leader_of(nodes)
        await alter(leader, retention__ms="0")
        state = leader.raft.replica.machine.state.partitions.by_number[1]
        assert [base for base, _ in state.rolls] == [1, 2, 3]
        state.rolls = state.rolls[:1]
        await until_planned(leader, (1, "time"))

    run_with(tmp_path, 1, body)
    assert StateMachine().state.partitions.by_number == {}
