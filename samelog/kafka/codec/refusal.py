"""Why something is not done, as Kafka's clients are told it."""

from __future__ import annotations

from kio.schema.errors import ErrorCode


class Refusal(Exception):
    """Why something is not done: what a client is told."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
