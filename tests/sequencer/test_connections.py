"""What publishers hold that are connected to a node."""

from __future__ import annotations

from typing import Any

from samelog.runtime.clock import SystemClock
from samelog.sequencer.connections import Connections
from samelog.sequencer.measures import Measures
from samelog.wire.holds import HeldPart

PART = (HeldPart("t", 0, "a" * 32, 10),)
MANY = 500


class Held:
    """Stands for a served session, and counts how often its name is read."""

    reads = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.holds: tuple[HeldPart, ...] = PART

    @property
    def session(self) -> str:
        """Its name."""
        Held.reads += 1
        return self.name


def changed(connections: Connections, session: Any) -> None:
    """The publisher has reported what it holds."""
    connections._holds_changed(session)


def test_a_word_about_one_session_looks_at_no_other() -> None:
    connections, told = Connections(Measures(SystemClock())), list[str]()
    connections.on_holds = lambda name: told.append(f"{name} {len(connections.holds(name))}")
    sessions = [Held(f"s{number}") for number in range(MANY)]
    for each in sessions:
        changed(connections, each)
    Held.reads = 0
    for each in sessions:  # their connection is over
        each.holds = ()
        changed(connections, each)
    assert Held.reads <= 2 * MANY
    assert told[MANY:] == [f"s{number} 0" for number in range(MANY)]
    assert not connections.holding


def test_the_newest_connection_of_a_session_counts() -> None:
    connections = Connections(Measures(SystemClock()))
    older, newer = Held("s"), Held("s")
    newer.holds = (*PART, HeldPart("u", 0, "b" * 32, 20))
    changed(connections, older)
    changed(connections, newer)
    assert connections.holds("s") == newer.holds
    newer.holds = ()
    changed(connections, newer)
    assert connections.holds("s") == older.holds
