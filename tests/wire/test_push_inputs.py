"""What a publisher believes of a handle before it knows which topic the node has opened."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from samelog.format.directory_files import RunFile
from samelog.wire.bounds import Ack, RunEnd
from samelog.wire.effects import Send
from samelog.wire.errors import FaultCode
from samelog.wire.messages import Refused, SessionStartsAt
from samelog.wire.push.effects import InputState, Reached
from samelog.wire.push.inputs import HELD_UP_S, MAX_OPENING, RunInputs
from samelog.wire.push.topics import AskedTopics
from samelog.wire.sender import Sender

HANDLE, NAME = 3, ("t", 0)
ACK = Ack(1, HANDLE, 5, 7681, 5, 7681, 5, 7681)


def opening() -> tuple[RunInputs, Any, list[Any]]:
    """An input whose topic the node has named, and which is not bound yet."""
    effects: list[Any] = []
    anything: Any = SimpleNamespace()
    sender = Sender(window_bytes=1, read_bytes=1)
    inputs = RunInputs(anything, anything, anything, effects, sender, handles=count())
    inputs.run = SimpleNamespace(run=0)  # type: ignore[assignment]
    shipped: Any = SimpleNamespace(
        handle=HANDLE,
        name=NAME,
        position=SimpleNamespace(topic_id="new"),
        state=InputState.OPENING,
        since=0.0,
        files=SimpleNamespace(layout=None),
    )
    inputs.by_handle[HANDLE] = shipped
    return inputs, shipped, effects


def reached(effects: list[Any]) -> list[Any]:
    return [each.places for each in effects if isinstance(each, Reached)]


def test_positions_of_a_deleted_topic_are_not_taken_for_the_next_ones() -> None:
    """A node that lagged opened the deleted topic and told how far it was there, before the
    publisher had read the topic's id. The positions counted for the next topic: files whose
    records were nowhere merged were removed (world 97 of --recreating --converting).
    """
    inputs, shipped, effects = opening()
    inputs.acknowledged(shipped, ACK)
    with patch.object(RunInputs, "_block"), patch.object(RunInputs, "_open_some"):
        inputs.bound(shipped, 1.0, is_same=False)
    assert reached(effects) == []
    assert not inputs._early


def test_positions_that_come_before_the_input_is_bound_are_used_then() -> None:
    inputs, shipped, effects = opening()
    inputs.acknowledged(shipped, ACK)
    assert reached(effects) == []
    with patch.object(RunInputs, "_resume"), patch.object(RunInputs, "_open_some"):
        inputs.bound(shipped, 1.0, is_same=True)
    assert reached(effects) == [((5, 7681),) * 3]


class Handles(dict[int, Any]):
    """Handles that are looked up only, never gone through."""

    def values(self) -> Any:
        raise AssertionError("all handles were visited")


def test_opening_an_input_costs_the_same_however_many_are_open() -> None:
    files = SimpleNamespace(layout=None, first=(0, 0), extent=lambda roll: None)
    names = [("t", partition) for partition in range(3 * MAX_OPENING)]
    session: Any = SimpleNamespace(
        is_current=lambda run: True,
        to_ship=lambda run, name=None: names,
        tail=lambda run, name: files,
        topic_id=lambda name: "id",
    )
    effects = list[Any]()
    sender = Sender(window_bytes=1, read_bytes=1)
    cluster: Any = SimpleNamespace()
    inputs = RunInputs(
        session, cluster, AskedTopics(cluster, effects), effects, sender, handles=count()
    )
    inputs.by_handle = Handles()
    inputs.begin_run(RunFile(run=0, run_id="r", started_ms=1), 0.0)
    for handle in range(len(names)):
        opened = [each.message for each in effects if isinstance(each, Send)]
        assert len(opened) == min(handle + MAX_OPENING, len(names))
        shipped = inputs.by_handle[handle]
        shipped.position = SessionStartsAt(handle, "id", 1, 0, 0)
        inputs.bound(shipped, 1.0, is_same=True)


def unanswered(code: FaultCode, **files: Any) -> bool:
    """Whether a run may end beside an input that a node refuses, once it has done so for long."""
    tail: Any = SimpleNamespace(
        layout=None, may_have_more=False, blocked=None, is_damaged=False, part_end=(0, 9)
    )
    vars(tail).update(files)
    session: Any = SimpleNamespace(
        is_current=lambda run: True,
        to_ship=lambda run, name=None: [NAME],
        tail=lambda run, name: tail,
        topic_id=lambda name: None,
    )
    cluster: Any = SimpleNamespace(
        is_given_up=lambda *_: False, note_refused=lambda *_: None, wanted_topics=dict
    )
    effects, sender = list[Any](), Sender(window_bytes=1, read_bytes=1)
    topics = AskedTopics(cluster, effects)
    inputs = RunInputs(session, cluster, topics, effects, sender, handles=count())
    inputs.begin_run(RunFile(run=0, run_id="r", started_ms=1), 0.0)
    (shipped,) = inputs.by_handle.values()
    refusal = Refused(shipped.handle, code, "not now", "retry")
    inputs.refused(shipped, refusal, HELD_UP_S - 0.5)
    assert not inputs.is_complete
    assert not inputs.is_held_up(HELD_UP_S - 0.1, is_listed=True)
    assert inputs.ends() == (RunEnd(*NAME, 0, 9),)
    return inputs.is_held_up(HELD_UP_S, is_listed=True)


def test_a_run_ends_beside_an_input_whose_group_does_not_answer() -> None:
    """It may never have been opened, and is not bound to a topic."""
    assert unanswered(FaultCode.NOT_READY)


def test_a_run_does_not_end_beside_what_is_refused_for_another_reason() -> None:
    """The cluster may not know the input: group 0 would wait for it."""
    assert not unanswered(FaultCode.OVER_QUOTA)
    assert not unanswered(FaultCode.UNKNOWN_TOPIC)


@pytest.mark.parametrize("files", [{"may_have_more": True}, {"blocked": "not a batch"}])
def test_a_run_does_not_end_before_its_ends_are_known(files: dict[str, Any]) -> None:
    """The cluster closes it at the ends that are named: what is behind them would be lost."""
    assert not unanswered(FaultCode.NOT_READY, **files)
