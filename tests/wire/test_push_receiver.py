"""What a node's end of a push connection admits, takes, refuses and tells: the rules that scenarios
(tests/replicator/scenarios/push_receiver_*.txt) do not reach, and what holds whatever comes.
"""

from __future__ import annotations

from dataclasses import replace
from operator import ge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.config.authorisation import Rights
from samelog.config.tables.node import Grant
from samelog.wire.bounds import TEXT_LIMIT_CHARACTERS, Ack, RunEnd
from samelog.wire.errors import FaultCode, ProtocolFault
from samelog.wire.messages import (
    Acks,
    AnyMessage,
    Close,
    ConnectionRole,
    EndRun,
    Hello,
    OpenInput,
    OpenRun,
    OpenSession,
    OpenTopic,
    Refused,
    RunClosed,
    SessionStartsAt,
    TopicGone,
    TopicOpened,
)
from samelog.wire.push import receiver as push_receiver
from samelog.wire.push.acks import ACK_GAP_S, Acknowledgements
from samelog.wire.push.effects import CHECKED, RollByte
from samelog.wire.push.receiver import OpenedInput, OpenedRun, PushReceiver, PushRequest
from samelog.wire.receiver import ResumePoint
from samelog.wire.refusals import RecordsRefused, RefusedBatch, ToldMisfit

PUBLISHER = "samelog://publisher/p"
GRANT = Grant(
    identity=PUBLISHER,
    publish_sessions=("s",),
    publish_topics=("flights",),
    publish_dedup_ids=("mine",),
)
HELLO = Hello(ConnectionRole.PUSH)
SESSION = OpenSession(1, "s", "id-1")
FLIGHTS = ("flights", 0)
NOTHING: RollByte = (0, 0)


class Conversation:
    """A receiver, and an intake that opens everything: input and run have their partition's and
    their own number.
    """

    def __init__(self, hello: Hello = HELLO) -> None:
        self.released: set[tuple[int, int, RollByte]] = set()
        self.acks = Acknowledgements()
        rights = Rights((GRANT,), ())
        self.end = PushReceiver(SESSION, hello, PUBLISHER, rights, self, acks=self.acks)

    def is_released(self, number: int, run_number: int, end: RollByte) -> bool:
        """ReleaseKnowledge.is_released"""
        return (number, run_number, end) in self.released

    def ask(self, request: PushRequest, now: float = 1.0) -> list[AnyMessage]:
        """A request's turn has come, and the intake has answered."""
        if self.end.admit(request):
            match request:
                case OpenRun():
                    self.end.run_opened(request, OpenedRun(request.run, closed=False))
                case OpenInput():
                    self.end.input_opened(request, opened(request.partition), now)
                case OpenTopic():
                    self.end.topic_opened(request, 3, is_checked=request.partitions == 9)
        return self.said()

    def said(self) -> list[AnyMessage]:
        """What was to be sent since the last time."""
        said, self.end.messages = self.end.messages, []
        return said


def opened(number: int, at: RollByte = NOTHING) -> OpenedInput:
    return OpenedInput(
        input=number,
        topic_id="t-1",
        partitions=4,
        position=ResumePoint(*at, -1, 0),
        merged=at,
    )


def talking() -> Conversation:
    """With run 0, and handle 0 on partition 0 of its flights."""
    made = Conversation()
    made.ask(OpenRun(0, "run-0"))
    [position] = made.ask(OpenInput(0, *FLIGHTS, "run-0"))
    assert position == SessionStartsAt(0, "t-1", 4, 0, 0)
    return made


def test_who_may_not_push_a_session_gets_no_conversation() -> None:
    rights, other = Rights((GRANT,), ()), OpenSession(1, "t", "i")
    with pytest.raises(ProtocolFault) as caught:
        PushReceiver(other, HELLO, PUBLISHER, rights, Conversation(), acks=Acknowledgements())
    assert caught.value.code is FaultCode.NOT_AUTHORISED


def test_a_topic_without_a_right_is_refused_before_the_intake_hears_of_it() -> None:
    made = talking()
    assert not made.end.admit(OpenTopic("weather", 2))
    assert not made.end.admit(OpenInput(1, "weather", 0, "run-0"))
    told, refused = made.said()
    assert isinstance(told, TopicOpened)
    assert (told.topic, told.partitions) == ("weather", 0)
    assert "may not publish to topic 'weather'" in told.reason
    assert isinstance(refused, Refused)
    assert (refused.handle, refused.code) == (1, FaultCode.NOT_AUTHORISED)
    assert made.ask(OpenTopic("flights", 2)) == [TopicOpened("flights", 3)]
    assert made.ask(OpenTopic("flights", 9)) == [TopicOpened("flights", 3, CHECKED)]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (OpenRun(1, "run-1", "theirs", 0), FaultCode.NOT_AUTHORISED),
        (OpenRun(2, "run-2"), FaultCode.TOO_MANY),
        (OpenInput(0, "flights", 1, "run-0"), FaultCode.PROTOCOL),
        (OpenInput(3, "flights", 1, "run-0"), FaultCode.TOO_MANY),
        (OpenInput(3, "flights", 1, "run-9"), FaultCode.TOO_MANY),
        (EndRun("run-9"), FaultCode.PROTOCOL),
    ],
)
def test_what_ends_the_session(
    request_: PushRequest, code: FaultCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_receiver, "MAX_HANDLES", 2)
    monkeypatch.setattr(push_receiver, "MAX_RUNS", 2)
    made = talking()
    made.ask(OpenRun(1, "run-1", "mine", 0))
    made.ask(OpenInput(1, "flights", 1, "run-0"))
    made.ask(Close(1))
    assert made.end.admit(OpenInput(2, "flights", 2, "run-0")), "handles that ended do not count"
    with pytest.raises(ProtocolFault) as caught:
        made.end.admit(request_)
    assert caught.value.code is code
    assert made.ask(OpenRun(1, "run-1", "mine", 0)), "one that is known is no other one"


def test_a_handle_that_is_being_opened_is_not_free() -> None:
    made = talking()
    wanted = OpenInput(1, "flights", 1, "run-0")
    assert made.end.admit(wanted)
    with pytest.raises(ProtocolFault, match="number handles upwards"):
        made.end.admit(wanted)
    made.end.refused(wanted, ProtocolFault(FaultCode.UNKNOWN_TOPIC, "x" * 5000, "y" * 5000))
    [refused] = made.said()
    assert isinstance(refused, Refused)
    assert len(refused.message) == len(refused.remedy) == TEXT_LIMIT_CHARACTERS
    assert made.end.taking(1) is None, "what is under way is dropped"
    assert made.ask(OpenInput(2, "flights", 1, "run-0")), "it may be tried again"
    assert made.end.taking(2) is not None


@pytest.mark.parametrize("code", FaultCode)
def test_what_is_about_one_input_ends_its_handle_and_all_else_the_session(
    code: FaultCode,
) -> None:
    fault = ProtocolFault(code, "no")
    bytes_only = {FaultCode.TOPIC_GONE, FaultCode.INVALID_BATCH, FaultCode.TOO_MANY}
    for refuse, about in (
        (PushReceiver.bytes_refused, bytes_only),
        (PushReceiver.start_refused, {FaultCode.TOPIC_GONE, FaultCode.OUT_OF_RANGE}),
    ):
        made = talking()
        if code not in about:
            with pytest.raises(ProtocolFault):
                refuse(made.end, 0, fault)
            assert made.said() == []
            continue
        refuse(made.end, 0, fault)
        [told] = made.said()
        assert told == (TopicGone(0) if code is FaultCode.TOPIC_GONE else Refused(0, code, "no"))
        assert made.end.taking(0) is None
        refuse(made.end, 0, ProtocolFault(FaultCode.FORK, "later"))
        assert made.said() == [], "it had ended already"


def test_a_run_that_closes_says_so_once_and_takes_no_more() -> None:
    made = talking()
    end = (0, 50)
    assert made.end.progressed(0, 0, (end, NOTHING, NOTHING), 1.0)
    made.end.run_closed("other", "run-0", {})
    made.end.run_closed("s", "run-9", {})
    assert made.said() == []
    made.end.run_closed("s", "run-0", {FLIGHTS: end})
    ends = (RunEnd(*FLIGHTS, *end),)
    assert made.said() == [RunClosed("run-0", ends)]
    assert made.end.taking(0) is None
    assert not made.end.admit(EndRun("run-0")), "it has ended"
    made.end.run_closed("s", "run-0", {})
    assert made.said() == [], "once is enough"


def test_ends_that_come_in_parts_are_forgotten_with_a_run_that_closes_between_them() -> None:
    """They counted for as long as the session was open: too many ended it."""
    talk = talking()
    ends = (RunEnd("flights", 0, 0, 1),)
    for run in range(3):
        talk.ask(OpenRun(run, f"part-{run}"))
        assert not talk.end.admit(EndRun(f"part-{run}", ends, more=True))
        talk.end.run_closed("s", f"part-{run}", {FLIGHTS: (0, 1)})
        assert not talk.end.admit(EndRun(f"part-{run}", ends))
    assert talk.end.ends == {}


def test_a_data_group_takes_its_part_of_a_run_that_is_closed() -> None:
    """Group 0 has closed the run, and the next one is open beside it."""
    made, end, other = talking(), (0, 50), ("flights", 1)
    made.ask(OpenInput(1, *other, "run-0"))
    made.end.run_closed("s", "run-0", {FLIGHTS: end, other: (0, 70)}, frozenset({other}))
    parts = (RunEnd(*other, 0, 70),)
    assert made.said() == [RunClosed("run-0", (RunEnd(*FLIGHTS, *end),), parts)]
    assert made.end.taking(0) is None
    assert made.end.taking(1) is not None
    made.ask(OpenRun(1, "run-1"))
    made.ask(OpenInput(2, *other, "run-0"))
    assert made.end.taking(2) is not None, "it may be opened again"
    made.ask(OpenInput(3, *FLIGHTS, "run-0"))
    assert made.end.taking(3) is None, "of the rest nothing is to come"
    made.end.part_closed("s", "run-0", {other: (0, 70)})
    assert made.end.taking(1) is None
    assert made.end.taking(2) is None


def test_nothing_more_is_taken_of_a_part_that_a_group_has_closed() -> None:
    made, end = talking(), (0, 50)
    made.ask(OpenInput(1, "flights", 1, "run-0"))
    for other in (("t", "run-0"), ("s", "run-9")):
        made.end.part_closed(*other, {FLIGHTS: end})
    assert made.end.taking(0) is not None
    made.end.part_closed("s", "run-0", {FLIGHTS: end})
    assert made.end.taking(0) is None
    assert made.end.taking(1) is not None, "other groups go on"
    assert made.said() == []
    assert made.end.progressed(0, 0, (end, end, NOTHING), 1.0)
    assert made.acks.take(1.0 + ACK_GAP_S)[-1].acks[-1] == Ack(1, 0, *end, *end, *NOTHING)
    assert made.end.admit(EndRun("run-0")), "the run goes on"


def test_a_part_that_is_closed_is_opened_at_its_end() -> None:
    made, wanted = Conversation(), OpenInput(0, *FLIGHTS, "run-0")
    made.ask(OpenRun(0, "run-0"))
    assert made.end.admit(wanted)
    made.end.input_opened(wanted, replace(opened(0, (7, 7)), end=(2, 50)), 1.0)
    assert made.said() == [SessionStartsAt(0, "t-1", 4, 2, 50)]
    assert made.end.taking(0) is None


def test_an_input_of_a_closed_run_is_opened_at_its_end_whatever_the_intake_holds() -> None:
    made = Conversation()
    run = OpenRun(0, "run-0")
    assert made.end.admit(run)
    made.end.run_opened(run, OpenedRun(0, closed=True, ends={FLIGHTS: (2, 50)}))
    made.said()
    wanted = OpenInput(0, *FLIGHTS, "run-0")
    assert made.end.admit(wanted)
    made.end.input_opened(wanted, opened(0, (7, 7)), 1.0)
    assert made.said() == [SessionStartsAt(0, "t-1", 4, 2, 50)]
    assert made.acks.take(1.0) == [Acks((Ack(1, 0, 2, 50, 2, 50, 0, 0),))]
    assert made.end.taking(0) is None
    [refused] = made.ask(OpenInput(1, "flights", 1, "run-0"))
    assert isinstance(refused, Refused)
    assert refused.code is FaultCode.OUT_OF_RANGE


def test_progress_of_a_newer_run_completes_an_older_one_once_it_is_released() -> None:
    made = talking()
    end, later = (0, 50), 1.0 + ACK_GAP_S
    made.end.run_closed("s", "run-0", {FLIGHTS: end})
    assert made.end.progressed(0, 1, (NOTHING, NOTHING, NOTHING), 1.0)
    assert made.acks.take(1.0) == [Acks((Ack(1, 0, *end, *end, *NOTHING),))]
    assert not made.end.progressed(0, 1, ((0, 9), (0, 9), (0, 9)), later)
    made.released.add((0, 0, end))
    assert made.end.progressed(0, 1, ((0, 9), (0, 9), (0, 9)), later)
    assert made.acks.take(later) == [Acks((Ack(1, 0, *end, *end, *end),))]
    assert not made.end.progressed(5, 1, (end, end, end), later), "another input"


def test_progress_of_an_older_run_says_nothing_of_a_newer_one() -> None:
    made = talking()
    made.ask(OpenRun(1, "run-1"))
    made.ask(OpenInput(1, *FLIGHTS, "run-1"))
    made.end.run_closed("s", "run-1", {FLIGHTS: (0, 9)})
    assert made.end.progressed(0, 0, ((0, 5), NOTHING, NOTHING), 1.0)
    assert made.acks.take(1.0) == [Acks((Ack(1, 0, 0, 5, *NOTHING, *NOTHING),))]


def test_handles_and_runs_that_ended_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_receiver, "MAX_HANDLES", 2)
    monkeypatch.setattr(push_receiver, "MAX_RUNS", 2)
    made = talking()
    for number in range(1, 50):
        made.end.run_closed("s", f"run-{number - 1}", {})
        made.ask(OpenRun(number, f"run-{number}"))
        [position] = made.ask(OpenInput(number, *FLIGHTS, f"run-{number}"))
        assert isinstance(position, SessionStartsAt)
        made.ask(Close(number - 1))
    assert list(made.end._runs) == ["run-49"]
    assert list(made.end._inputs) == [49]


def test_nothing_is_told_of_a_deleted_topic_but_that() -> None:
    made = talking()
    made.ask(OpenInput(1, *FLIGHTS, "run-0"))
    made.end.progressed(0, 0, ((0, 5), NOTHING, NOTHING), 1.0)
    made.end.topic_gone(0)
    assert made.said() == [TopicGone(0), TopicGone(1)]
    assert made.acks.take(2.0) == []
    assert made.end.taking(0) is made.end.taking(1) is None


PICKS, RUNS, PLACES = st.integers(0, 3), st.integers(0, 1), st.integers(0, 9)
EVENTS = st.one_of(
    st.tuples(st.sampled_from(["open", "close", "refuse"]), PICKS, RUNS),
    st.tuples(st.just("reach"), PLACES, RUNS),
    st.tuples(st.sampled_from(["end run", "topic gone"]), st.just(0), RUNS),
)


class Model:
    """What is open after some events, and what was told of it."""

    def __init__(self) -> None:
        self.talk = Conversation()
        self.runs: dict[int, int] = {}
        """Open handle -> run."""
        self.closed: set[int] = set()
        self.next_handle = 0
        self.told: dict[int, Ack] = {}
        for run in (0, 1):
            self.talk.ask(OpenRun(run, f"run-{run}"))

    def happen(self, kind: str, number: int, run: int, now: float) -> None:
        """One event; `number` picks one of the newest handles, a position, or nothing."""
        end, handle = self.talk.end, self.next_handle - 1 - number
        if kind == "open":
            handle, self.next_handle = self.next_handle, self.next_handle + 1
            self.talk.ask(OpenInput(handle, *FLIGHTS, f"run-{run}"), now)
            self.runs[handle] = run
            self.told[handle] = Ack(1, handle, 0, 0, 0, 0, 0, 0)
        elif kind == "close":
            self.talk.ask(Close(max(0, handle)))
            self.runs.pop(max(0, handle), None)
        elif kind == "refuse":
            end.bytes_refused(handle, ProtocolFault(FaultCode.INVALID_BATCH, "no"))
            self.runs.pop(handle, None)
        elif kind == "reach":
            end.progressed(0, run, ((0, number), (0, number // 2), (0, number // 3)), now)
        elif kind == "end run":
            end.run_closed("s", f"run-{run}", {FLIGHTS: (0, 9)})
            self.closed.add(run)
        elif kind == "topic gone":
            end.topic_gone(0)
            self.runs.clear()

    def check_told(self, now: float) -> None:
        """Acknowledgements are of open handles, and never go back."""
        due_at = self.talk.acks.due_at
        is_due = due_at is not None and due_at <= now
        self.talk.said()
        for message in self.talk.acks.take(now) if is_due else ():
            for ack in message.acks:
                assert ack.handle in self.runs
                before, self.told[ack.handle] = self.told[ack.handle], ack
                assert ack != before
                assert all(map(ge, _positions(ack), _positions(before)))

    def check_taken(self) -> None:
        """Bytes are taken for open handles of open runs, dropped for those that have ended."""
        for handle in range(self.next_handle):
            held = self.talk.end.taking(handle)
            takes = handle in self.runs and self.runs[handle] not in self.closed
            assert (held is not None) == takes
            assert held is None or held.run_number == self.runs[handle]
        with pytest.raises(ProtocolFault, match="is not open"):
            self.talk.end.taking(self.next_handle)


@given(st.lists(EVENTS, max_size=30))
def test_whatever_comes_only_open_handles_are_told_of_and_taken_for(
    events: list[tuple[str, int, int]],
) -> None:
    model, now = Model(), 1.0
    for event in events:
        now += 0.001
        model.happen(*event, now)
        model.check_told(now)
        model.check_taken()


def _positions(message: Ack) -> tuple[int, int, int]:
    return message.durable_byte, message.acknowledged_byte, message.merged_byte


def refused(start: int, run: int = 0) -> RefusedBatch:
    return RefusedBatch(0, run, 0, start, 10, (0, 1), (ToldMisfit(0, "a", "int32", "x"),))


def test_what_is_refused_is_told_once_and_before_it_is_acknowledged() -> None:
    hello = Hello(ConnectionRole.PUSH, refusals=True)
    made = Conversation(hello)
    made.ask(OpenRun(0, "run-0"))
    made.ask(OpenInput(0, *FLIGHTS, "run-0"))
    made.end.records_refused(0, [refused(0), refused(10, run=7)])
    made.end.progressed(0, 0, ((0, 10), (0, 10), NOTHING), 2.0)
    assert made.said() == [RecordsRefused(0, refused(0))]
    assert [ack.acknowledged_byte for each in made.acks.take(2.0) for ack in each.acks] == [10]
    made.end.records_refused(0, [refused(0), refused(20)])
    assert made.said() == [RecordsRefused(0, refused(20))]
    held = made.end.kept(0)
    assert held is not None
    assert (held.number, held.run_number) == (0, 0)


def test_a_sender_that_cannot_hear_what_is_refused_gets_no_acknowledgement_of_it() -> None:
    made = talking()
    made.end.records_refused(0, [refused(0)])
    made.end.progressed(0, 0, ((0, 10), (0, 10), NOTHING), 2.0)
    (told,) = made.said()
    assert isinstance(told, Refused)
    assert told.code is FaultCode.UNSUPPORTED_VERSION
    assert made.acks.take(2.0) == []
