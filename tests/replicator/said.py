"""Messages as scenarios write them, and back.

What a scenario says of a message is its kind, and a text for each field that matters.
"""

from __future__ import annotations

import ast
from typing import Any

from samelog.format import _kernels as kernels
from samelog.wire import messages
from samelog.wire.bounds import Ack, RunEnd
from samelog.wire.errors import FaultCode
from samelog.wire.messages import Acks, AnyMessage
from tests.replicator.session_files import batch


def show(message: AnyMessage | Ack) -> str:
    """A message in words; of Acks, each position."""
    if isinstance(message, Acks):
        return " ".join(map(show, message.acks))
    fields = [(name, getattr(message, name)) for name in message.__struct_fields__]
    return " ".join(
        [type(message).__name__, *(f"{name}={_value(value)}" for name, value in fields)]
    )


def _value(value: object) -> str:
    if isinstance(value, FaultCode | messages.Start):
        return value.name
    if isinstance(value, tuple):
        return str([tuple(each) for each in value])
    return repr(value)


def message_of(kind: str, fields: tuple[str, ...]) -> AnyMessage | Ack:
    """The message that a command names; an Ack is of channel 1."""
    given: dict[str, Any] = {"channel": 1} if kind == "Ack" else {}
    for field in fields:
        name, _, text = field.partition("=")
        if text in FaultCode.__members__:
            given[name] = FaultCode[text]
        elif text.startswith("crc:"):
            given[name] = kernels.scan(batch(text[4:].encode())).last_crc
        elif name == "start":
            given[name] = messages.Start[text]
        elif name in ("ends", "parts"):
            given[name] = tuple(_run_end(end) for end in text.split(","))
        else:
            try:
                given[name] = ast.literal_eval(text)
            except (ValueError, SyntaxError):
                given[name] = text
    found: AnyMessage | Ack = Ack(**given) if kind == "Ack" else getattr(messages, kind)(**given)
    return found


def _run_end(text: str) -> RunEnd:
    """`TOPIC-PARTITION:ROLL:BYTE`"""
    name, roll, byte = text.split(":")
    topic, _, partition = name.rpartition("-")
    return RunEnd(topic, int(partition), int(roll), int(byte))
