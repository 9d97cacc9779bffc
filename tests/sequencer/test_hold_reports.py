"""Members learn what publishers hold that are connected to another one, whatever is dropped."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from samelog.sequencer.cluster.hold_reports import HoldReports
from samelog.sequencer.cluster.presence import Presence
from samelog.wire.holds import HeldPart
from samelog.wire.peer_messages import HoldsTold

HELD = (HeldPart("t", 0, "a" * 32, 10),)


class Members:
    """Members 1 and 2, whose queues may be full, and their reporter."""

    def __init__(self) -> None:
        self.presence = {number: Presence(number) for number in (1, 2)}
        self.connected = [1, 2]
        self.full: set[int] = set()
        self.sent = 0
        self.holds: dict[str, tuple[HeldPart, ...]] = {}
        sender: Any = Mock(connected=self.connected, send=self._send)
        self.reports = HoldReports(sender, lambda session: self.holds.get(session, ()))

    def _send(self, to: int, message: HoldsTold) -> bool:
        self.sent += 1
        if to not in self.full and to in self.connected:
            self.presence[to].told_holds(0, message.session, message.parts)
            return True
        return False

    def change(self, session: str, parts: tuple[HeldPart, ...]) -> None:
        self.holds[session] = parts
        self.reports.changed(session)

    def known(self) -> list[dict[str, tuple[HeldPart, ...]]]:
        """What members 1 and 2 know of the reporter's publishers."""
        return [self.presence[number].holds.get(0, {}) for number in (1, 2)]


def test_a_report_that_was_dropped_is_repeated() -> None:
    """It was lost until the member reconnected."""
    members = Members()
    members.full = {2}
    members.change("s", HELD)
    members.reports.repeat()
    assert members.known() == [{"s": HELD}, {}]
    members.full = set()
    members.reports.repeat()
    assert members.known() == [{"s": HELD}, {"s": HELD}]
    members.full = {1}
    members.change("s", ())
    members.full = set()
    members.reports.repeat()
    assert members.known() == [{}, {}], "the end of a hold, too"
    sent = members.sent
    members.reports.repeat()
    assert members.sent == sent, "what arrived is not repeated"


def test_a_member_that_is_welcomed_gets_all_once() -> None:
    members = Members()
    members.full = {2}
    members.change("s", HELD)
    members.connected.remove(2)
    members.reports.repeat()
    members.change("u", HELD)
    members.connected.append(2)
    members.full = set()
    members.reports.welcomed(2, members.holds)
    sent = members.sent
    members.reports.repeat()
    assert (members.known()[1], members.sent) == ({"s": HELD, "u": HELD}, sent)
