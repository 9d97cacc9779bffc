"""Texts that people write: in UTF-8, with or without the byte order mark that some editors add.

Invariant: a text that is not UTF-8 is refused with the command that converts it.
"""

from __future__ import annotations

from codecs import BOM_UTF8


class NotUtf8(ValueError):
    """A text has another encoding; the message has the remedy."""


def decode_file(data: bytes) -> str:
    """Return the text of a file, without its mark. Raises NotUtf8."""
    return decode_text(data.removeprefix(BOM_UTF8))


def decode_text(data: bytes) -> str:
    """Return a part of a file as text. Raises NotUtf8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise NotUtf8(
            f"byte {data[error.start]:#04x} at {error.start} is not UTF-8; convert the file with "
            "iconv -t UTF-8 -f ENCODING, such as ISO-8859-1 or UTF-16"
        ) from None
