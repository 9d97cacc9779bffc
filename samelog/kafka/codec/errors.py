"""What is wrong with bytes that a client sent, or with a request that cannot be answered.

Invariant: whatever a parser is given, it returns a value or raises one of these; the connection
that the bytes came on is closed, and nothing else is harmed.
"""

from __future__ import annotations

from samelog.kafka.codec.error_codes import ErrorCode


class MalformedRequest(Exception):
    """Bytes that are no request of the Kafka protocol."""


class ManyElements(MalformedRequest):
    """A message has more elements than its reader or writer may handle."""


class UnsupportedRequest(Exception):
    """A request of an API or a version that is not served here."""


class Unanswerable(Exception):
    """What a request asks for is refused, and the client expects no answer: all that is left is to
    close the connection.
    """


class ApiError(Exception):
    """Why something that a client asked for is not done: Kafka's code, and a text for people."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class InvalidResponse(Exception):
    """A handler made a response that Kafka's description does not allow: a fault of ours."""
