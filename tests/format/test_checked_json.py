"""Small JSON files that carry their checksum: no bit of them turns without a word."""

from __future__ import annotations

import msgspec
import pytest

from samelog.format.checked_json import checked, encode_checked
from samelog.format.directory_files import SessionFile, decode_directory_file, encode_directory_file
from samelog.format.errors import LogFormatError

SESSION = SessionFile(session="s", id="0d4a", identity="samelog://client/s", cluster="rt")


def with_bit_turned(data: bytes, bit: int) -> bytes:
    found = bytearray(data)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def test_what_was_written_is_read() -> None:
    data = encode_checked(SESSION)
    assert checked(data) == data
    assert msgspec.json.decode(data, type=SessionFile) == SESSION


@pytest.mark.parametrize("data", [b"", b"{}", b'{\n "a": 1\n}\n'])
def test_what_has_no_checksum_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no checksum: an older version"):
        checked(data)


def test_a_checksum_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="checksum is wrong"):
        checked(b',\n "crc32c": x\n}\n')


def test_no_bit_of_a_directory_file_turns_without_a_word() -> None:
    data = encode_directory_file(SESSION)
    assert decode_directory_file(data, "session.json", SessionFile) == SESSION
    for bit in range(8 * len(data)):
        with pytest.raises(LogFormatError, match=r"session\.json"):
            decode_directory_file(with_bit_turned(data, bit), "session.json", SessionFile)
