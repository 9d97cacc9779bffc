"""What can be wrong with bytes, names and directories of the log format.

Invariant: every fault of data, of a disk or of a caller is a `LogFormatError`, with its facts as
attributes, so that callers decide by type and never by text. `InvariantError` is not one of them:
it means that this program is wrong, and must end the process.
"""

from __future__ import annotations


class InvariantError(Exception):
    """A rule that this program guarantees itself does not hold; never caught, ends the process."""


class LogFormatError(Exception):
    """Base of every fault of the log format."""


class CorruptLog(LogFormatError):
    """A file of a log holds bytes that cannot be right."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(path, position, reason)
        self.path = path
        self.position = position  # bytes from the start of the file
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.reason}"


class CorruptBatch(LogFormatError):
    """A record batch in a buffer is incomplete, invalid, or its records are."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position  # of the batch: bytes from the start of the buffer
        self.reason = reason

    def __str__(self) -> str:
        return f"record batch at byte {self.position}: {self.reason}"


class DecompressionError(LogFormatError):
    """A compressed blob is corrupt, of an unknown codec, or unpacks to more than the limit."""


class RecordTooLarge(LogFormatError, ValueError):
    """A record to be written is larger than allowed."""

    def __init__(self, index: int, size: int, limit: int) -> None:
        super().__init__(index, size, limit)
        self.index = index  # of the record among those of the call
        self.size = size  # bytes, encoded
        self.limit = limit  # bytes

    def __str__(self) -> str:
        return f"record {self.index} takes {self.size} bytes; at most {self.limit} are allowed"


class InvalidName(LogFormatError, ValueError):
    """A name of a session, topic or node breaks its grammar."""


class UnsupportedFormat(LogFormatError):
    """A directory or file was written by another version of the format, or for another log."""


class OtherTopic(UnsupportedFormat):
    """A directory belongs to another topic id than expected: its name was used before."""

    def __init__(self, path: str, found: str, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.path} belongs to topic id {self.found}, not to {self.expected}"


class DirectoryInUse(LogFormatError):
    """Another process holds the directory."""


class NotContiguous(LogFormatError, ValueError):
    """Bytes were offered for a position that is not the end of the log."""
