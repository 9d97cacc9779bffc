"""Who is up: reports and connections decide, and members that are gone leave nothing behind."""

from samelog.sequencer.cluster.presence import OFFLINE, Presence
from samelog.wire.bounds import Health
from samelog.wire.holds import HeldPart

HEALTH = Health(1, 2, 3)


def test_a_member_is_up_from_its_report_until_its_last_connection_broke() -> None:
    presence = Presence(0)
    presence.dialled(1)
    presence.dialled(1)
    assert presence.up == [0]
    presence.heard(1, HEALTH)
    presence.heard(1, None)
    assert (presence.is_there(1), presence.health) == (True, {1: HEALTH})
    assert not presence.broke(1, 5.0)
    assert presence.is_there(1)
    assert presence.was_there(1, 99.0, 1.0)
    assert presence.broke(1, 5.0)
    assert (presence.is_there(1), presence.up, presence.health) == (False, [0], {1: HEALTH})
    assert [presence.was_there(1, now, 10.0) for now in (14.9, 15.0)] == [True, False]
    assert not presence.was_there(2, 5.0, 10.0)


def test_a_member_that_tells_nothing_is_not_heard() -> None:
    """It lost its power while this member was paused, so its connection looks open."""
    presence = Presence(0)
    presence.dialled(1)
    presence.heard(1, HEALTH)
    assert presence.is_heard(1, 99.0), "it is about to tell its state"
    presence.say(1, OFFLINE, 10.0)
    heard = [(presence.is_there(1), presence.is_heard(1, now)) for now in (14.9, 15.0)]
    assert heard == [(True, True), (True, False)]
    assert presence.is_heard(0, 99.0)
    presence.broke(1, 10.0)
    assert not presence.is_heard(1, 10.0)


def test_who_is_no_member_any_more_is_forgotten_but_for_oneself() -> None:
    presence = Presence(0)
    for number in range(3):
        presence.heard(number, HEALTH)
        presence.told_holds(number, "s", (HeldPart("t", 0, "a" * 32, 10),))
    presence.forget_others({2})
    assert (presence.up, sorted(presence.health)) == ([0, 2], [0, 2])
    assert sorted(presence.holds) == [0, 2]
