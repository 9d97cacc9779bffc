"""Listeners are notified of their own inputs and sessions only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from samelog.replicator.interfaces import ResumePoint
from samelog.replicator.watchers import Watchers
from samelog.sequencer.ingest.intake import Intake
from samelog.sequencer.node import Node
from samelog.sequencer.state.tables.sessions import Input
from tests.sequencer.cluster import RunWith, Session, batch, offset, taken, until

QUIET = 20


class Told(Counter[str]):
    """A connection that counts what it hears."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def on_progress(self, *_: Any) -> None:
        self["progress"] += 1

    def on_run_closed(self, *_: Any) -> None:
        self["closed"] += 1

    def on_topic_gone(self, *_: Any) -> None:
        self["gone"] += 1


async def connected(node: Node, session: Session) -> Told:
    """A listener that has opened the session's input."""
    told = Told()
    listener: Any = told
    node.logs.intake.watchers.watch(listener, session.name)
    await session.open_run(node)
    await node.logs.intake.open_input(
        identity="samelog://publisher/x",
        session=session.name,
        run_id=session.run_id,
        topic="t",
        partition=0,
        listener=listener,
    )
    await until(lambda: told["progress"] > 0, "its position")
    return told


def test_only_those_who_have_an_input_or_a_session_hear_of_it(
    tmp_path: Path, run_with: RunWith
) -> None:
    async def body(nodes: list[Node]) -> None:
        [node] = nodes
        quiet = [await connected(node, Session(f"quiet-{n}")) for n in range(QUIET)]
        active = Session("active")
        told = await connected(node, active)
        before = [each.copy() for each in quiet]
        data = batch(b"a")
        [number] = (each.number for each in node.logs.machine.state.sessions.inputs_of("active"))
        await taken(node.logs.intake.append(number, 0, 0, 0, data))
        await until(lambda: offset(node) == 1, "merged")
        node.logs.intake.end_run("active", active.run_id, {("t", 0): (0, len(data))})
        await until(lambda: told["closed"] == 1, "the run is closed")
        assert told["progress"] > 1
        assert [each.copy() for each in quiet] == before

    run_with(tmp_path, 1, body)


def test_a_listener_watches_an_input_before_its_position_is_read(
    tmp_path: Path, run_with: RunWith, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    original = Intake.position

    def position(self: Intake, entry: Input) -> ResumePoint:
        found.append(bool(self.watchers.of_input(entry.number)))
        return original(self, entry)

    monkeypatch.setattr(Intake, "position", position)

    async def body(nodes: list[Node]) -> None:
        await connected(nodes[0], Session("s"))
        assert found == [True]

    run_with(tmp_path, 1, body)


def test_a_listener_that_is_gone_leaves_nothing_behind() -> None:
    watchers = Watchers()
    one, other = object(), object()
    listeners: list[Any] = [one, other]
    for each in listeners:
        watchers.watch(each, "s")
        watchers.watch_input(each, 1)
        watchers.watch_input(each, 2)
    watchers.unwatch_inputs(listeners[0], {1})
    assert watchers.of_input(1) == (other,)
    assert watchers.of_input(2) == (one, other)
    watchers.forget(2)
    watchers.unwatch(listeners[0])
    watchers.watch_input(listeners[0], 3)  # by a request that was under way
    assert watchers.of_session("s") == (other,)
    watchers.unwatch(listeners[1])
    assert (watchers.by_input, watchers.by_session, watchers._watched) == ({}, {}, {})
