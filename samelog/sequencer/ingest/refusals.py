"""What a publisher is told when the cluster rejects or does not answer.

Invariant: every rejection of the state machine becomes a RequestRefused with a remedy that can
help.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from samelog.replicator.interfaces import RequestRefused
from samelog.sequencer.state.command_base import Rejection
from samelog.wire.errors import FaultCode

_CODES = {
    "SESSION_CONFLICT": FaultCode.SESSION_CONFLICT,
    "SESSION_FENCED": FaultCode.SESSION_CONFLICT,
    "UNKNOWN_TOPIC": FaultCode.UNKNOWN_TOPIC,
    "MIRROR": FaultCode.NOT_AUTHORISED,
    "RUN_CLOSED": FaultCode.OUT_OF_RANGE,
}
_REMEDIES = {
    "MIRROR": "publish at the source, or let `samelog mirror promote` make it a topic of its own",
    "SESSION_CONFLICT": "give each publisher a session name of its own, or retire the old one",
    "SESSION_FENCED": "give this publisher a new directory: this one was retired",
}


def refused(rejection: Rejection) -> RequestRefused:
    """A rejection, as publishers are told it."""
    code = _CODES.get(rejection.code, FaultCode.NOT_READY)
    return RequestRefused(code, rejection.message, _REMEDIES.get(rejection.code, "retry"))


@contextmanager
def answered() -> Iterator[None]:
    """Raises RequestRefused (NOT_READY) when the cluster does not answer."""
    try:
        yield
    except TimeoutError as error:
        message = f"the cluster does not answer: {error}"
        raise RequestRefused(FaultCode.NOT_READY, message, "retry") from error
