"""Messages: every one round trips, its bytes are pinned, and any other bytes are refused."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.wire import holds, messages, peer_messages, refusals, transaction_messages
from samelog.wire.bounds import RunEnd
from samelog.wire.errors import FaultCode, FrameError, ProtocolFault
from samelog.wire.frames import CONTROL_LIMIT_BYTES, HEADER_BYTES
from samelog.wire.messages import (
    AnyMessage,
    Close,
    ConnectionRole,
    Fault,
    Hello,
    OpenInput,
    OpenSession,
    OpenSessionLog,
    RunClosed,
    decode_message,
    encode_message,
)
from samelog.wire.peer_messages import Forward

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "protocol.md"
SESSION_NAMES = st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,127}\Z")
TOPIC_NAMES = st.from_regex(r"\A[a-zA-Z0-9_-]{1,249}\Z")
NAMED_FIELDS = {
    "session": SESSION_NAMES,
    "node": SESSION_NAMES,
    "cluster": SESSION_NAMES,
    "topic": TOPIC_NAMES,
    "name": TOPIC_NAMES,
}


def values(kind: Any, field: str = "") -> st.SearchStrategy[Any]:
    """Every value of a field's type that may be on the wire."""
    if kind is str and field in NAMED_FIELDS:
        return NAMED_FIELDS[field]
    if hasattr(kind, "__metadata__"):
        return bounded(kind.__origin__, kind.__metadata__[0], field)
    if get_origin(kind) in (Union, types.UnionType):
        return st.one_of([values(option, field) for option in get_args(kind)])
    if kind is type(None):
        return st.none()
    if get_origin(kind) is tuple:
        return tuples(get_args(kind))
    if get_origin(kind) is dict:
        return st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        return st.builds(kind, **fields_of(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **fields_of(kind))
    return st.from_type(kind)


def tuples(kinds: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if kinds[-1] is Ellipsis:
        return st.lists(values(kinds[0]), max_size=3).map(tuple)
    return st.tuples(*map(values, kinds))


def bounded(kind: type, meta: msgspec.Meta, field: str) -> st.SearchStrategy[Any]:
    if get_origin(kind) is tuple:
        return values(kind, field)
    if kind is bytes:
        return st.binary(min_size=meta.min_length or 0, max_size=meta.max_length)
    if kind is int:
        return st.integers(int(meta.ge or 0), int(meta.le or 0))
    if meta.pattern is not None:
        return st.from_regex(meta.pattern)
    return NAMED_FIELDS.get(field, st.text(min_size=meta.min_length or 0, max_size=meta.max_length))


def fields_of(kind: type) -> dict[str, st.SearchStrategy[Any]]:
    hints = get_type_hints(kind, include_extras=True)
    fields = {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}
    return {name: values(hint, name) for name, hint in fields.items() if not name.startswith("_")}


ALL = get_args(AnyMessage)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_message_round_trips(kind: type[AnyMessage]) -> None:
    @given(values(kind))
    def check(message: AnyMessage) -> None:
        assert decode_message(encode_message(message)[HEADER_BYTES:]) == message

    check()


def test_every_message_is_in_the_union() -> None:
    structs = {
        kind
        for module in (holds, messages, peer_messages, refusals, transaction_messages)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
    }
    assert structs == set(ALL)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_message_is_documented_with_its_tag_and_fields(kind: Any) -> None:
    fields = ", ".join(kind.__struct_fields__)
    line = f"| {kind.__struct_config__.tag} | {kind.__name__} | {fields} |"
    assert line in DOCUMENT.read_text(), line


@pytest.mark.parametrize("code", FaultCode, ids=lambda code: code.name)
def test_every_fault_code_is_documented(code: FaultCode) -> None:
    assert f"| {code.value} | {code.name} |" in DOCUMENT.read_text()


def test_the_bytes_of_some_messages() -> None:
    hello = Hello(ConnectionRole.PUSH, cluster="demo")
    assert encode_message(hello) == bytes.fromhex(
        "00000011 01 01 0000 00000000 9c 01 01 01 a464656d6f c0 00 c0 c0 c2 c2 a0 c2"
    )
    opened = OpenSession(1, "ewr", "a1")
    assert encode_message(opened)[HEADER_BYTES:] == bytes.fromhex("94 1a 01 a3657772 a26131")
    assert encode_message(Close(3), 9) == bytes.fromhex("00000003 01 01 0000 00000009 92 06 03")
    fault = Fault(FaultCode.GAP, "m", "r")
    assert encode_message(fault)[HEADER_BYTES:] == bytes.fromhex("94 03 0b a16d a172")
    closed = RunClosed("ab", (RunEnd("t", 0, 1, 2),))
    assert encode_message(closed)[HEADER_BYTES:] == bytes.fromhex(
        "94 0e a26162 91 94 a174 00 01 02 90"
    )


@pytest.mark.parametrize(
    "array",
    [
        [12, 1, "../../etc/passwd", 0, "ab"],
        [12, 1, "..", 0, "ab"],
        [12, 1, "a/b", 0, "ab"],
        [12, 1, "", 0, "ab"],
        [12, 1, "t\x00", 0, "ab"],
        [12, 1, "t\n", 0, "ab"],
        [12, 1, "x" * 250, 0, "ab"],
        [26, 1, "../x", "ab"],
        [1, 1, 1, "Demo"],
        [1, 3, 1, "demo", "/", 0],
        [14, "ab", [["..", 0, 0, 0]]],
    ],
)
def test_names_that_could_be_paths_are_refused(array: list[object]) -> None:
    with pytest.raises(ProtocolFault) as caught:
        decode_message(msgspec.msgpack.encode(array))
    assert caught.value.code is FaultCode.INVALID_NAME


@pytest.mark.parametrize(
    "array",
    [
        [],
        None,
        {},
        "x",
        [0],
        [99],
        [4, 1],
        ["4"],
        [6],
        [6, -1],
        [6, 1 << 32],
        [6, 1.5],
        [6, None],
        [6, True],
        [20, 1, "ab", 1, -1, 0, -1, 0],
        [20, 1, "ab", 1, 1 << 63, 0, -1, 0],
        [20, 1, "ab", 1, 0, 0, -2, 0],
        [12, 1, "t", 0, "run/id"],
        [12, 1, "t", 0, "a" * 65],
        [3, 1, "x" * 1025, ""],
        [3, 99, "", ""],
        [1, 9, 1, "", None, None, None, 0],
        [1, 3, 1, "", None, None, "n", 0, -1],
        [1, 3, 1, "", None, None, "n", 0, 1 << 32],
    ],
)
def test_anything_else_is_refused(array: object) -> None:
    with pytest.raises(ProtocolFault) as caught:
        decode_message(msgspec.msgpack.encode(array))
    assert caught.value.code is FaultCode.PROTOCOL


@given(st.binary(max_size=100))
def test_any_bytes_give_a_message_or_a_fault(data: bytes) -> None:
    try:
        message = decode_message(data)
    except ProtocolFault:
        return
    assert isinstance(message, ALL)


@given(values(OpenSessionLog) | values(RunClosed), st.data())
def test_a_changed_message_gives_a_message_or_a_fault(message: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode_message(message)[HEADER_BYTES:])
    index = data.draw(st.integers(0, len(encoded) - 1))
    encoded[index] ^= data.draw(st.integers(1, 255))
    try:
        decode_message(bytes(encoded[: data.draw(st.integers(0, len(encoded)))]))
    except ProtocolFault:
        return


@pytest.mark.parametrize(
    "prefix", [b"", b"\x92\x05", b"\x93\x0e\xa2ab", b"\x93\x32\x01\x94\x01\xa1t\x01"]
)
def test_deep_nesting_is_refused(prefix: bytes) -> None:
    with pytest.raises(ProtocolFault):
        decode_message(prefix + b"\x91" * 200_000)


def test_a_message_longer_than_a_frame_may_be_is_not_sent() -> None:
    with pytest.raises(FrameError):
        encode_message(Forward(1, bytes(CONTROL_LIMIT_BYTES)))


def test_hello_and_fault_of_a_later_version_can_be_read() -> None:
    hello = [1, 1, 2, "demo", None, 0, None, None, False, False, "", False]
    hello.append("something")
    assert decode_message(msgspec.msgpack.encode(hello)) == Hello(ConnectionRole.PUSH, 2, "demo")
    fault = [3, 2, "m", "r", [1, 2]]
    message = decode_message(msgspec.msgpack.encode(fault))
    assert message == Fault(FaultCode.UNSUPPORTED_VERSION, "m", "r")


def test_local_construction_checks_names_too() -> None:
    with pytest.raises(ValueError, match="valid topic name"):
        OpenInput(1, "..", 0, "ab")
