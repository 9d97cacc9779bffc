"""The bytes of messages: equal after a round trip, a typed error for everything else."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.consensus import (
    Entry,
    GroupMessages,
    MalformedMessage,
    decode_groups,
    encode_groups,
)
from samelog.consensus.messages import AnyRaftMessage, Append, Commit, RaftMessage, TimeoutNow
from samelog.consensus.types import MAX_NODE_ID, MAX_NUMBER

KINDS: tuple[type[RaftMessage], ...] = get_args(AnyRaftMessage)
U32 = st.integers(0, 2**32 - 1)
NUMBERS = st.integers(0, MAX_NUMBER) | st.integers(0, 12)


@st.composite
def messages(draw: st.DrawFn, numbers: st.SearchStrategy[int] = NUMBERS) -> RaftMessage:
    """Any message that can be decoded."""
    entries = st.builds(Entry, numbers, numbers, st.binary(max_size=20))
    values: dict[str, st.SearchStrategy[object]] = {
        "granted": st.booleans(),
        "transfer": st.booleans(),
        "needs_all": st.booleans(),
        "counts": st.booleans(),
        "data": st.binary(max_size=20),
        "entries": st.lists(entries, max_size=4).map(tuple),
        "voters": st.lists(st.integers(0, MAX_NODE_ID), max_size=7).map(tuple),
        "learners": st.lists(st.integers(0, MAX_NODE_ID), max_size=7).map(tuple),
    }
    kind = draw(st.sampled_from(KINDS))
    fields: list[Any] = [draw(values.get(name, numbers)) for name in kind.__struct_fields__]
    return kind(*fields)


@given(st.lists(st.tuples(U32, U32, U32, st.lists(messages(), max_size=3)), max_size=4))
def test_round_trip(parts: list[tuple[int, int, int, list[Any]]]) -> None:
    said = [GroupMessages(*part) for part in parts]
    assert decode_groups(encode_groups(said)) == said


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_messages_or_a_typed_error(payload: bytes) -> None:
    try:
        decode_groups(payload)
    except MalformedMessage:
        return


def in_parts(batch: list[Any]) -> bytes:
    """Each message of a group of its own."""
    return encode_groups([GroupMessages(1, 2, 3, [message]) for message in batch])


@given(st.lists(messages(), min_size=1, max_size=3), st.data())
def test_damaged_payloads_are_messages_or_a_typed_error(
    batch: list[RaftMessage], data: st.DataObject
) -> None:
    payload = bytearray(in_parts(batch))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_groups(payload[: data.draw(st.integers(0, len(payload)))])
    except MalformedMessage:
        return


@pytest.mark.parametrize(
    "content",
    [
        (3, 0, 0, []),
        (2, 0, 0, []),
        (2, [(1, 2, [])]),
        (2, [(1, 2, 1 << 32, [])]),
        (2, [(1, 2, 3, [[8, 1, 2]])]),
        (2, [], 7),
        (1, 0, 0, []),
        (2, [(1, 1 << 32, 3, [])]),
        (2, [(1, 2, 3, [[99, 1]])]),
        (2, [(1, 2, 3, [[8, 1, 2, 3, 4]])]),
        (2, [(1, 2, 3, [[8, 1, -2, 3]])]),
        (2, [(1, 2, 3, [[8, 1, MAX_NUMBER + 1, 3]])]),
        (2, [(1, 2, 3, [[8, 1, "2", 3]])]),
        {"version": 1},
    ],
)
def test_what_is_not_as_agreed_is_refused(content: object) -> None:
    with pytest.raises(MalformedMessage):
        decode_groups(msgspec.msgpack.encode(content))


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        decode_groups(b"\x92\x02" + b"\x91" * 100_000)


def test_the_bytes_are_the_documented_ones() -> None:
    batch: list[Any] = [
        TimeoutNow(3),
        Commit(3, 300, 2),
        Append(3, 1, 7, 2, (Entry(8, 3, b"ab"),), 6),
    ]
    expected = "93 92 0d 03 94 08 03 cd012c 02 97 05 03 01 07 02 91 93 08 03 c402 6162 06"
    parts = [GroupMessages(300, 1, 2, batch), GroupMessages(4, 0, 0, [])]
    expected = f"92 02 92 94 cd012c 01 02 {expected} 94 04 00 00 90"
    assert encode_groups(parts) == bytes.fromhex(expected)


def test_message_numbers_are_fixed() -> None:
    numbers = [kind.__struct_config__.tag for kind in KINDS]
    assert numbers == list(range(1, 17))
