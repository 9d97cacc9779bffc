"""What can be wrong with a peer's bytes, and how it is said to the peer.

Invariant: anything a peer sends gives a value, "need more", or an error under WireError; no other
exception leaves this package because of bytes from the network.
"""

from __future__ import annotations

from enum import Enum, IntEnum, unique


@unique
class FaultCode(IntEnum):
    """Why a connection or a handle is refused; the numbers are the wire format."""

    PROTOCOL = 1
    UNSUPPORTED_VERSION = 2
    NOT_AUTHORISED = 3
    INVALID_NAME = 4
    WRONG_CLUSTER = 5
    SESSION_CONFLICT = 6
    STALE_BOOT = 7
    TOPIC_GONE = 8
    UNKNOWN_TOPIC = 9
    INVALID_BATCH = 10
    GAP = 11
    OUT_OF_RANGE = 12
    FORK = 13
    NOT_READY = 14
    DISK_FULL = 15
    TOO_MANY = 16
    NOT_LEADER = 17
    TIMEOUT = 18
    INTERNAL = 19
    ALREADY_EXISTS = 20
    NOT_A_MEMBER = 21
    CHANGE_PENDING = 22
    UNKNOWN_GROUP = 23
    GROUP_IN_USE = 24
    TOPIC_IN_USE = 25
    OVER_QUOTA = 26
    UNKNOWN_SESSION = 27


@unique
class FrameProblem(Enum):
    """What is wrong with a frame's header."""

    UNKNOWN_TYPE = "unknown type"
    UNSUPPORTED_VERSION = "unsupported version"
    RESERVED_BITS = "reserved bits set"
    TOO_LONG = "too long"
    TOO_SHORT = "too short"


class WireError(Exception):
    """Base of everything that a peer can do wrong on the wire."""


class FrameError(WireError):
    """A frame header that this version of the protocol does not have."""

    def __init__(self, problem: FrameProblem, text: str) -> None:
        super().__init__(f"bad frame: {text}")
        self.problem = problem


class ProtocolFault(WireError):
    """A peer broke the protocol or asks for what it may not have; a Fault frame, in Python."""

    def __init__(self, code: FaultCode, message: str, remedy: str = "") -> None:
        super().__init__(f"{code.name}: {message}" + (f" ({remedy})" if remedy else ""))
        self.code = code
        self.message = message
        self.remedy = remedy
