"""What can be looked up of a group's sessions without going through all of them.

Invariant: an index that followed every change of the table equals one that is made of the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

REMEMBERED_SHARE = 10
"""An identity's remembered sessions and inputs are at most so many times those it may have open."""
_OF_NODE = re.compile(r"(?:kafka|events)-(\d{1,9})", re.ASCII)


def node_of(session: str) -> int | None:
    """The node that writes a session; None if a publisher does."""
    match = _OF_NODE.fullmatch(session)
    return None if match is None else int(match[1])


class IndexedInput(Protocol):
    """A session's part of one partition."""

    number: int
    session: str
    partition: int


class IndexedRun(Protocol):
    """One run of a session."""

    closed: bool


class IndexedSession(Protocol):
    """What the index reads of a session."""

    name: str
    identity: str
    idle_since_ms: int

    @property
    def runs(self) -> Sequence[IndexedRun]:
        """Those that are remembered, in the order of their numbers."""

    @property
    def is_staged(self) -> bool:
        """Whether its newest run is, or was, staged."""

    @property
    def has_parts_to_come(self) -> bool:
        """Whether data groups have yet to take parts of closed runs."""


class IndexedTable(Protocol):
    """What an index is made of."""

    @property
    def by_name(self) -> Mapping[str, IndexedSession]:
        """All sessions."""

    @property
    def inputs(self) -> Mapping[int, IndexedInput]:
        """All inputs, by their numbers."""


class _Noted(NamedTuple):
    """What counts of a session that is remembered: one whose runs are not forgotten."""

    identity: str
    is_open: bool
    inputs: int


class SessionIndex:
    """What can be looked up of sessions without going through all of them: their inputs, and how
    many runs, inputs and remembered sessions each identity has.

    Derived from the table, and no part of a snapshot. `note` follows each change of a session. An
    index that followed every change equals one that is made `of` the table.
    """

    def __init__(self) -> None:
        self.open_runs: Counter[str] = Counter()
        """By identity, as all that follow."""
        self.open_inputs: Counter[str] = Counter()
        """Inputs of sessions that have an open run."""
        self.remembered: Counter[str] = Counter()
        """Sessions whose runs are not forgotten."""
        self.inputs: Counter[str] = Counter()
        """Inputs of all remembered sessions."""
        self.grown: set[str] = set()
        """Identities of which more is remembered, or may be forgotten, than at the last look."""
        self.ended: dict[str, None] = {}
        """Remembered sessions with no open run and no parts to come, in the order they ended."""
        self.staged: dict[str, None] = {}
        """Remembered sessions whose newest run is, or was, staged."""
        self.of_nodes: dict[str, None] = {}
        """Remembered sessions that nodes write."""
        self.parted: dict[str, None] = {}
        """Sessions with parts of closed runs that are yet to come to data groups."""
        self._idle: dict[str, dict[str, None]] = {}
        """Identity -> those of them that it has, in the order they ended."""
        self._noted: dict[str, _Noted] = {}
        self._places: dict[str, dict[int, int]] = {}
        """Session -> partition -> input."""

    @classmethod
    def of(cls, sessions: IndexedTable) -> SessionIndex:
        """The index of a table."""
        index = cls()
        for entry in sessions.inputs.values():
            index.add_input(entry)
        for session in sorted(sessions.by_name.values(), key=lambda each: each.idle_since_ms):
            index.note(session)
        return index

    # --- changes ----------------------------------------------------------------------------------

    def add_input(self, entry: IndexedInput) -> None:
        """There is an input."""
        self._places.setdefault(entry.session, {})[entry.partition] = entry.number

    def drop_input(self, entry: IndexedInput) -> None:
        """There is an input no more."""
        places = self._places[entry.session]
        del places[entry.partition]
        if not places:
            del self._places[entry.session]

    def note(self, session: IndexedSession) -> None:
        """A session, its runs or its inputs have changed."""
        before = self._noted.pop(session.name, None)
        if before is not None:
            self._count(before, -1)
        runs = session.runs
        if not runs:
            if before is not None:
                self._forget(session.name, before.identity)
            return
        is_open = not runs[-1].closed
        inputs = len(self._places.get(session.name, ()))
        noted = self._noted[session.name] = _Noted(session.identity, is_open, inputs)
        self._count(noted, 1)
        if before is None or inputs > before.inputs or not is_open:
            self.grown.add(session.identity)
        self._list(session, before, is_open=is_open)

    def released(self, session: str) -> None:
        """More of a session is merged durably on a majority."""
        if session in self.ended:
            self.grown.add(self._noted[session].identity)

    def _list(self, session: IndexedSession, before: _Noted | None, *, is_open: bool) -> None:
        is_idle = not (is_open or session.has_parts_to_come)
        if before is not None and not (is_idle and before.identity == session.identity):
            self._forget(session.name, before.identity)
        if is_idle:
            self._idle.setdefault(session.identity, {})[session.name] = None
            self.ended[session.name] = None
        self.parted.pop(session.name, None)
        if session.has_parts_to_come:
            self.parted[session.name] = None
        if session.is_staged:
            self.staged[session.name] = None
        if node_of(session.name) is not None:
            self.of_nodes[session.name] = None

    def _forget(self, name: str, identity: str) -> None:
        idle = self._idle.get(identity)
        if idle is not None:
            idle.pop(name, None)
            if not idle:
                del self._idle[identity]
        for table in (self.ended, self.staged, self.of_nodes, self.parted):
            table.pop(name, None)

    def _count(self, noted: _Noted, by: int) -> None:
        identity, is_open, inputs = noted
        self.remembered[identity] += by
        self.inputs[identity] += by * inputs
        if is_open:
            self.open_runs[identity] += by
            self.open_inputs[identity] += by * inputs

    # --- questions --------------------------------------------------------------------------------

    def input_of(self, session: str, partition: int) -> int | None:
        """The number of a session's input of one partition."""
        return self._places.get(session, {}).get(partition)

    def places_of(self, session: str) -> Mapping[int, int]:
        """The numbers of a session's inputs, by partition."""
        return self._places.get(session, {})

    def inputs_of(self, session: str) -> list[int]:
        """The numbers of a session's inputs, in the order they were opened."""
        return sorted(self._places.get(session, {}).values())

    def idle(self, identity: str) -> dict[str, None]:
        """Remembered sessions of an identity with no open run and no parts to come, in the order
        they ended.
        """
        return self._idle.get(identity, {})

    def crowded(self, sessions: int, partitions: int) -> dict[str, int]:
        """Return of how many sessions too many are remembered, by identity, where it may have so
        many sessions and partitions open.
        """
        found = {}
        for identity in tuple(self.grown):
            excess = self.remembered[identity] - REMEMBERED_SHARE * sessions
            if excess <= 0 and self.inputs[identity] > REMEMBERED_SHARE * partitions:
                excess = 1
            if excess > 0:
                found[identity] = excess
            else:
                self.grown.discard(identity)
        return found
