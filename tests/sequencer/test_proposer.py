"""Proposing while leadership is unsettled: never to oneself, and again until somebody answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from samelog.consensus import NotLeader
from samelog.runtime.clock import SystemClock
from samelog.sequencer.levels import LOWEST
from samelog.sequencer.raft import proposer as proposing
from samelog.sequencer.raft.proposer import ENTRY_BYTES, FORWARD_BYTES, Proposer, in_entries
from samelog.sequencer.state.command_base import Rejection
from samelog.sequencer.state.commands import decode_commands, encode_commands
from samelog.sequencer.state.tables.members import NodeStarted
from samelog.wire.messages import encode_message
from samelog.wire.peer_messages import (
    CommandRefused,
    Forward,
    Forwarded,
)
from tests.cluster_sim.new_kind import NEW_BUILD, NewKind, known
from tests.runtime.peers import until

BIG = ENTRY_BYTES - 10


class ElectedGroup:
    """A node that was just elected: it leads in Raft's eyes, but its no-op is not applied yet."""

    def __init__(self) -> None:
        self.is_leader = False
        self.raft = SimpleNamespace(leader=1, node_id=1)

    def ask(self, commands: list[Any]) -> tuple[int, asyncio.Future[list[Any]]]:
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        future.set_result(["done"])
        return 7, future


def test_a_new_leader_waits_for_its_no_op() -> None:
    async def main() -> None:
        group = ElectedGroup()
        sent: list[int] = []

        def send(to: int, message: object) -> bool:
            sent.append(to)
            return False

        proposer = Proposer(group, SimpleNamespace(), SystemClock(), send)  # type: ignore[arg-type]
        proposal = asyncio.ensure_future(proposer.propose(NodeStarted("n", 1, 0, "life", 1)))
        await asyncio.sleep(0)
        assert not proposal.done()
        group.is_leader = True
        assert await proposal == "done"
        assert sent == []

    asyncio.run(main())


class CountedGroup:
    """A leader whose confirmations come when the test says so."""

    def __init__(self) -> None:
        self.rounds: list[asyncio.Future[int | None]] = []

    async def read_index(self) -> int | None:
        self.rounds.append(asyncio.get_running_loop().create_future())
        return await self.rounds[-1]


class Applied:
    """A replica that has applied everything."""

    async def wait_applied(self, index: int) -> None:
        pass


def test_who_asks_together_shares_a_round_that_begins_later() -> None:
    async def main() -> None:
        group = CountedGroup()
        proposer = Proposer(group, Applied(), SystemClock(), lambda to, message: True)  # type: ignore[arg-type]
        early = asyncio.create_task(proposer.catch_up())
        await until(lambda: len(group.rounds) == 1)
        late = [asyncio.create_task(proposer.catch_up()) for _ in range(100)]
        await asyncio.sleep(0)
        group.rounds[0].set_result(7)
        await early
        await until(lambda: len(group.rounds) == 2)
        assert not any(task.done() for task in late)
        group.rounds[1].set_result(None)  # nobody leads: asked again
        await until(lambda: len(group.rounds) == 3)
        group.rounds[2].set_result(8)
        await asyncio.gather(*late)
        assert len(group.rounds) == 3

    asyncio.run(main())


class Leader(ElectedGroup):
    """It leads, and remembers what is in each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.is_leader = True
        self.entries: list[list[Any]] = []

    def ask(self, commands: list[Any]) -> tuple[int, asyncio.Future[list[Any]]]:
        self.entries.append(list(commands))
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        future.set_result([command.number for command in commands])
        return len(self.entries), future


def test_many_commands_are_few_entries() -> None:
    group = Leader()
    commands = [NodeStarted("n" * size, 1, n, "life", 1) for n, size in enumerate([1, 1, BIG, 1])]

    async def main() -> list[Any]:
        replica: Any = SimpleNamespace(level=LOWEST)
        proposer = Proposer(group, replica, SystemClock(), lambda to, message: True)  # type: ignore[arg-type]
        return await proposer.propose_all(commands)

    assert asyncio.run(main()) == [0, 1, 2, 3]
    assert [len(entry) for entry in group.entries] == [2, 1, 1]


def test_commands_are_forwarded_together() -> None:
    commands = [NodeStarted("n", 1, n, "life", 1) for n in range(4)]
    sent: list[int] = []

    async def main() -> None:
        follows = ElectedGroup()
        follows.raft = SimpleNamespace(leader=2, node_id=1)
        replica: Any = Applied()
        replica.level = LOWEST

        def to_leader(to: int, message: Any) -> bool:
            found = len(decode_commands(message.commands))
            sent.append(found)
            told = (CommandRefused(),) * found
            answer = Forwarded(message.id, 7, told)
            asyncio.get_running_loop().call_soon(asker.answered, answer)
            return True

        asker = Proposer(follows, replica, SystemClock(), to_leader)  # type: ignore[arg-type]
        assert await asker.propose_all(commands) == [True] * 4

    asyncio.run(main())
    assert sent == [4]


def test_what_is_asked_for_in_one_turn_is_one_entry_and_each_gets_its_own_outcomes() -> None:
    group = Leader()
    commands = [NodeStarted("n", 1, n, "life", 1) for n in range(6)]

    async def main() -> list[Any]:
        replica: Any = SimpleNamespace(level=LOWEST)
        told: list[Any] = []

        def send(to: int, message: Any) -> bool:
            told.append(message)
            return True

        proposer = Proposer(group, replica, SystemClock(), send)  # type: ignore[arg-type]
        asked = [asyncio.ensure_future(proposer.propose(each)) for each in commands[:3]]
        gone = asyncio.ensure_future(proposer.propose(commands[3]))
        served = asyncio.ensure_future(proposer.serve(2, Forward(9, encode_commands(commands[4:]))))
        await asyncio.sleep(0)
        gone.cancel()
        await served
        assert told == [Forwarded(9, 1, (CommandRefused(), CommandRefused()))]
        return [await each for each in asked]

    assert asyncio.run(main()) == [0, 1, 2]
    assert group.entries == [commands]


class Refusing(Leader):
    """It leads no more, each other time."""

    def ask(self, commands: list[Any]) -> tuple[int, asyncio.Future[list[Any]]]:
        if len(self.entries) % 2:
            return super().ask(commands)
        self.entries.append([])
        raise NotLeader(None)


def test_what_cannot_be_proposed_together_is_asked_for_again_by_each() -> None:
    group = Refusing()

    async def main() -> list[Any]:
        replica: Any = SimpleNamespace(level=LOWEST)
        proposer = Proposer(group, replica, SystemClock(), lambda to, message: True)  # type: ignore[arg-type]
        commands = [NodeStarted("n", 1, n, "life", 1) for n in range(3)]
        return await asyncio.gather(*map(proposer.propose, commands))

    assert asyncio.run(main()) == [0, 1, 2]
    assert [len(entry) for entry in group.entries] == [0, 3]


NEEDING: Any = NewKind("new")


class NewReplica:
    """Of a cluster that is new: its level comes with an entry."""

    def __init__(self) -> None:
        self.level = self.applied_index = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def wait_applied(self, index: int) -> None:
        self.waiting.append((index, asyncio.get_running_loop().create_future()))
        await self.waiting[-1][1]

    def apply(self, level: int) -> None:
        self.applied_index += 1
        self.level = level
        waiting, self.waiting = self.waiting, []
        for index, future in waiting:
            assert index == self.applied_index
            future.set_result(None)


def test_what_needs_a_level_waits_for_the_first_one_of_a_new_cluster() -> None:
    """Its entries before that one change nothing."""

    async def main() -> None:
        group, replica = ElectedGroup(), NewReplica()
        group.is_leader = True
        proposer = Proposer(group, replica, SystemClock(), lambda to, message: True)  # type: ignore[arg-type]
        asked = asyncio.ensure_future(proposer.propose(NEEDING))
        for level in (0, NEW_BUILD):
            await until(lambda: bool(replica.waiting))
            assert not asked.done()
            replica.apply(level)
        assert await asked == "done"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("level", "has"), [(0, "this new one has none: a member is away"), (1, "the cluster has 1")]
)
def test_what_needs_a_level_that_does_not_come_is_refused(
    level: int, has: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposing, "BEGIN_S", 0.001)

    async def main() -> Any:
        replica: Any = NewReplica()
        replica.level = level
        group: Any = ElectedGroup()
        return await Proposer(group, replica, SystemClock(), lambda *_: True).propose(NEEDING)

    refused = asyncio.run(main())
    assert refused.code == "LEVEL_TOO_LOW"
    assert refused.message == f"it needs feature level {NEW_BUILD}, {has}: docs/upgrades.md"


def test_a_leader_that_has_yet_to_apply_the_level_is_asked_again() -> None:
    """It applies only what is on its own disk, so its followers may be ahead of it."""

    async def main() -> None:
        leads, follows = Leader(), ElectedGroup()
        leads.ask = ElectedGroup().ask  # type: ignore[method-assign]
        follows.raft = SimpleNamespace(leader=2, node_id=1)
        behind, ahead = (
            NewReplica(),
            SimpleNamespace(level=NEW_BUILD, wait_applied=Applied().wait_applied),
        )
        answers, tasks = list[Any](), list[Any]()

        def to_leader(to: int, message: Any) -> bool:
            tasks.append(asyncio.ensure_future(leader.serve(1, message)))
            return True

        def to_asker(to: int, message: Any) -> bool:
            answers.append(message)
            asker.answered(message)
            return True

        leader = Proposer(leads, behind, SystemClock(), to_asker)  # type: ignore[arg-type]
        asker = Proposer(follows, ahead, SystemClock(), to_leader)  # type: ignore[arg-type]
        asked = asyncio.ensure_future(asker.propose(NEEDING))
        await until(lambda: bool(answers))
        assert not asked.done()
        behind.apply(NEW_BUILD)
        assert await asked is True

    with known():
        asyncio.run(main())


def test_what_is_forwarded_together_is_answered_one_by_one() -> None:
    """The leader says of each command what became of it; who asked waits until it is applied."""
    applied: list[int] = []

    async def wait_applied(index: int) -> None:
        applied.append(index)

    async def main() -> list[Any]:
        leads, follows = Leader(), ElectedGroup()
        follows.raft = SimpleNamespace(leader=2, node_id=1)
        replica: Any = SimpleNamespace(level=LOWEST, wait_applied=wait_applied)
        tasks: list[Any] = []
        refusal = Rejection("TOPIC_EXISTS", "it is there")

        def refuse_the_second(commands: list[Any]) -> tuple[int, asyncio.Future[list[Any]]]:
            index, future = Leader.ask(leads, commands)
            found: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            found.set_result([0, refusal, *future.result()[2:]])
            return index, found

        leads.ask = refuse_the_second  # type: ignore[method-assign]

        def to_leader(to: int, message: Any) -> bool:
            tasks.append(asyncio.ensure_future(leader.serve(1, message)))
            return True

        def to_asker(to: int, message: Any) -> bool:
            asker.answered(message)
            return True

        leader = Proposer(leads, replica, SystemClock(), to_asker)  # type: ignore[arg-type]
        asker = Proposer(follows, replica, SystemClock(), to_leader)  # type: ignore[arg-type]
        commands = [NodeStarted("n", 1, number, "life", 1) for number in range(3)]
        return await asker.propose_all(commands)

    assert asyncio.run(main()) == [True, Rejection("TOPIC_EXISTS", "it is there"), True]
    assert applied == [1]


def test_what_fits_no_message_is_refused_and_no_answer_is_too_long() -> None:
    """However long the reasons are that a leader gives."""
    sent: list[Any] = []

    async def main() -> list[Any]:
        follows = ElectedGroup()
        follows.raft = SimpleNamespace(leader=2, node_id=1)
        replica: Any = SimpleNamespace(level=LOWEST)

        def send(to: int, message: Any) -> bool:
            sent.append(message)
            return True

        asker = Proposer(follows, replica, SystemClock(), send)  # type: ignore[arg-type]
        return await asker.propose_all([NodeStarted("n" * FORWARD_BYTES, 1, 0, "life", 1)])

    (refused,) = asyncio.run(main())
    assert refused.code == "TOO_LARGE"
    assert not sent
    commands = [NodeStarted("n", 1, number, "life", 1) for number in range(1200)]
    together = list(in_entries(commands))
    assert [command for entry in together for command in entry] == commands
    most = max(map(len, together))
    assert most == 500
    reasons = tuple(CommandRefused("UNKNOWN_TOPIC", "x" * 1024) for _ in range(most))
    assert encode_message(Forwarded(1, 1, reasons))
    entries = list(in_entries([NodeStarted("n" * 1000, 1, 0, "life", 1)] * most))
    assert max(len(encode_message(Forward(1, encode_commands(x)))) for x in entries) < 1 << 20


@pytest.mark.parametrize(
    ("leads", "entries"),
    [(True, [[]]), (False, [])],
)
def test_a_follower_asks_for_an_entry_that_does_nothing(
    *, leads: bool, entries: list[list[Any]]
) -> None:
    """It waits for no answer."""

    async def main() -> None:
        group, follows = Leader(), ElectedGroup()
        group.is_leader = leads
        follows.raft = SimpleNamespace(leader=2, node_id=1)
        replica: Any = SimpleNamespace(level=LOWEST)
        sent, answered = list[Any](), list[Any]()

        def to_leader(to: int, message: Any) -> bool:
            sent.append(message)
            return True

        def to_asker(to: int, message: Any) -> bool:
            answered.append(message)
            return True

        leader = Proposer(group, replica, SystemClock(), to_asker)  # type: ignore[arg-type]
        asker = Proposer(follows, replica, SystemClock(), to_leader)  # type: ignore[arg-type]
        asker.ask_for_entry()
        for message in sent:
            await leader.serve(1, message)
        for message in answered:
            asker.answered(message)
        assert group.entries == entries

    asyncio.run(main())
