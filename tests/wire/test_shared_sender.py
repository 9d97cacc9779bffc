"""Many groups' logs on one connection: each credit has its own window, and its turn."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from samelog.wire.sender import FIRST_BYTES, ReadRange, Seal
from samelog.wire.shared_sender import Credit, SharedSender

WINDOW, READ = 1000, 100
ENDLESS = 1 << 40
SESSIONS, MERGED = Credit(1, is_merged=False), Credit(1, is_merged=True)
OTHER = Credit(2, is_merged=True)


def new_sender(used: dict[int, Credit], end: int = ENDLESS) -> SharedSender:
    """A log for each handle, `end` bytes long."""
    sender = SharedSender(window_bytes=WINDOW, read_bytes=READ)
    for handle, credit in used.items():
        sender.assign(handle, credit)
        sender.add(handle, 0, 0)
        sender.available(handle, 0, end)
    return sender


def send_next(sender: SharedSender) -> int | None:
    """Do what is next, in full: of which handle."""
    match step := sender.next_read():
        case ReadRange():
            sender.sent(step.handle, step.limit_bytes)
            return step.handle
        case Seal():
            return step.handle
        case None:
            return None


def test_credits_take_turns_however_many_logs_each_has() -> None:
    sender = new_sender({1: SESSIONS, 2: MERGED, 3: MERGED, 4: OTHER})
    assert [send_next(sender) for _ in range(9)] == [1, 2, 4, 1, 3, 4, 1, 2, 4]


def test_a_group_whose_window_is_full_holds_up_no_other() -> None:
    sender = new_sender({1: MERGED, 2: OTHER})
    while send_next(sender) is not None:
        pass
    assert sender.in_flight_bytes(MERGED) == sender.in_flight_bytes(OTHER) == WINDOW
    sender.received(2, 300)
    assert [send_next(sender) for _ in range(4)] == [2, 2, 2, None]
    assert sender.in_flight_bytes(MERGED) == WINDOW
    sender.received(1, 100)
    assert [send_next(sender) for _ in range(2)] == [1, None]


def test_a_merged_log_begins_though_others_fill_the_window() -> None:
    sender = new_sender({1: MERGED})
    while send_next(sender) is not None:
        pass
    sender.assign(2, MERGED)
    sender.add(2, 0, 0)
    sender.available(2, 0, ENDLESS)
    assert sender.next_read() == ReadRange(2, 0, 0, FIRST_BYTES)
    sender.sent(2, 50)
    assert sender.next_read() is None
    sender.received(2, 50)
    assert sender.next_read() == ReadRange(2, 0, 50, FIRST_BYTES)


def test_session_bytes_wait_for_their_window() -> None:
    sender = new_sender({1: SESSIONS})
    while send_next(sender) is not None:
        pass
    sender.assign(2, SESSIONS)
    sender.add(2, 0, 0)
    sender.available(2, 0, 10)
    assert sender.next_read() is None


def test_what_is_removed_frees_its_window_alone() -> None:
    sender = new_sender({1: MERGED, 2: MERGED, 3: OTHER})
    while send_next(sender) is not None:
        pass
    sender.remove(1)
    sender.received(1, 100)
    assert sender.in_flight_bytes(MERGED) == WINDOW // 2
    assert [send_next(sender) for _ in range(6)] == [2] * 5 + [None]


def test_a_file_is_sealed_and_the_next_one_follows() -> None:
    sender = new_sender({1: MERGED}, end=0)
    sender.assign(2, OTHER)
    sender.add(2, 0, 0)
    sender.available(2, 0, 10, next_file=7)
    sender.available(2, 7, 5)
    assert [send_next(sender) for _ in range(4)] == [2, 2, 2, None]
    assert sender.position(2) == (7, 5)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), max_size=60),
)
def test_no_credit_passes_its_window_or_waits_for_another(
    logs: list[tuple[int, bool]], steps: list[tuple[int, int]]
) -> None:
    """The model: what is under way by each credit, and how long each waits that has room."""
    used = {handle: Credit(*log) for handle, log in enumerate(logs)}
    sender = new_sender(used)
    under_way = Counter[int]()
    waits = Counter[Credit]()
    for handle, told in steps:
        taken = min(told, under_way[handle])
        if taken:
            sender.received(handle, taken)
            under_way[handle] -= taken
        in_use = {credit: sum(under_way[h] for h in used if used[h] == credit) for credit in waits}
        has_room = {credit for credit in used.values() if in_use.get(credit, 0) < WINDOW}
        step = sender.next_read()
        assert isinstance(step, ReadRange) or not has_room
        if not isinstance(step, ReadRange):
            continue
        credit, size = used[step.handle], min(step.limit_bytes, READ)
        assert credit in has_room or (credit.is_merged and not under_way[step.handle])
        sender.sent(step.handle, size)
        under_way[step.handle] += size
        for other in set(used.values()):
            waits[other] = 0 if other == credit or other not in has_room else waits[other] + 1
            assert waits[other] < len(set(used.values()))
        for other in set(used.values()):
            total = sum(under_way[h] for h in used if used[h] == other)
            assert sender.in_flight_bytes(other) == total
