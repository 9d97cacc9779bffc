"""What a publisher believes of a handle before it knows which topic the node has opened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from samelog.wire.bounds import Ack
from samelog.wire.push.effects import InputState, Reached
from samelog.wire.push.inputs import RunInputs
from samelog.wire.sender import Sender

HANDLE, NAME = 3, ("t", 0)
ACK = Ack(1, HANDLE, 5, 7681, 5, 7681, 5, 7681)


def opening() -> tuple[RunInputs, Any, list[Any]]:
    """An input whose topic the node has named, and which is not bound yet."""
    effects, anything = list[Any](), SimpleNamespace()
    inputs = RunInputs(anything, anything, effects, Sender(window_bytes=1, read_bytes=1))
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
