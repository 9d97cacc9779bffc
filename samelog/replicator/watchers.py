"""Listeners of a member's intakes, by the inputs and sessions that they concern.

A listener watches a session, and each input of it from before the input's position is read. So an
event about an input or a session costs the same however many other connections there are.

Invariant: `unwatch` removes every trace of a listener, and nothing is added for it afterwards, even
by a request that was under way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from samelog.wire.errors import ProtocolFault
from samelog.wire.push.effects import InputName, ProgressTold, RunEnds
from samelog.wire.refusals import RefusedBatch

_Key = TypeVar("_Key", int, str)


class IntakeListener(Protocol):
    """Hears of its session and of the inputs it has opened, by the intake's numbers.

    Must neither raise nor block.
    """

    def on_progress(self, number: int, run: int, places: ProgressTold, leader: int | None) -> None:
        """Positions of a run of an input; each one never goes back while the run is the same.

        *Merged* is merged-durable on a majority. `leader`: the other member that leads the input's
        group, and so reports the same earlier; None: this one leads, or none does. Of closed runs
        behind which a newer one has begun nothing is reported: ask `is_released` when the newer one
        moves.
        """

    def on_refused(self, number: int, batches: Sequence[RefusedBatch]) -> None:
        """What was refused of an input, and its sender has not said that it has kept; told again
        with everything that is told of the input, before it.
        """

    def on_run_closed(
        self, session: str, run_id: str, ends: RunEnds, parts: frozenset[InputName]
    ) -> None:
        """The cluster has closed a run at these ends; `parts`: those that data groups have yet to
        reach.
        """

    def on_session_retired(self, session_ids: Collection[str], why: ProtocolFault) -> None:
        """These directories of the session are fenced."""

    def on_part_closed(self, session: str, run_id: str, ends: RunEnds) -> None:
        """A group has closed its part of a run: it takes nothing more of what is named."""

    def on_topic_gone(self, number: int) -> None:
        """The input's topic was deleted."""

    def on_input_moved(self, number: int) -> None:
        """The input's partition goes to other nodes: ask again who takes it."""


@dataclass(frozen=True, slots=True)
class _Interests:
    """The sessions and inputs of one listener."""

    sessions: set[str] = field(default_factory=set)
    inputs: set[int] = field(default_factory=set)


class Watchers:
    """One member's, by its numbers of inputs."""

    def __init__(self) -> None:
        self.by_input: dict[int, dict[IntakeListener, None]] = {}
        """Input -> its listeners; an input without listeners is not in it."""
        self.by_session: dict[str, dict[IntakeListener, None]] = {}
        """The same, of sessions."""
        self._watched: dict[IntakeListener, _Interests] = {}

    def of_input(self, number: int) -> tuple[IntakeListener, ...]:
        """The listeners of an input."""
        return tuple(self.by_input.get(number, ()))

    def of_session(self, session: str) -> tuple[IntakeListener, ...]:
        """The listeners of a session."""
        return tuple(self.by_session.get(session, ()))

    def watch(self, listener: IntakeListener, session: str) -> None:
        """Notify `listener` of events of a session from now on, and let it watch inputs."""
        self._watched.setdefault(listener, _Interests()).sessions.add(session)
        self.by_session.setdefault(session, {})[listener] = None

    def watch_input(self, listener: IntakeListener, number: int) -> None:
        """Notify `listener` of events of an input from now on, unless it watches nothing."""
        watched = self._watched.get(listener)
        if watched is not None:
            watched.inputs.add(number)
            self.by_input.setdefault(number, {})[listener] = None

    def unwatch_inputs(self, listener: IntakeListener, numbers: Collection[int]) -> None:
        """Stop notifying `listener` of these inputs."""
        watched = self._watched.get(listener)
        if watched is not None:
            watched.inputs.difference_update(numbers)
        for number in numbers:
            _remove(self.by_input, number, listener)

    def unwatch(self, listener: IntakeListener) -> None:
        """Stop notifying `listener` of anything."""
        watched = self._watched.pop(listener, _Interests())
        for number in watched.inputs:
            _remove(self.by_input, number, listener)
        for session in watched.sessions:
            _remove(self.by_session, session, listener)

    def forget(self, number: int) -> None:
        """An input is gone: nothing happens to it any more."""
        for listener in self.by_input.pop(number, ()):
            self._watched[listener].inputs.discard(number)


def _remove(
    index: dict[_Key, dict[IntakeListener, None]], key: _Key, listener: IntakeListener
) -> None:
    listeners = index.get(key)
    if listeners is not None:
        listeners.pop(listener, None)
        if not listeners:
            del index[key]
