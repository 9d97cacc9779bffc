"""Small JSON files that carry their checksum, and their text twice: they are read as written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from samelog.format.checked_json import checked, encode_checked, is_intact
from samelog.format.directory_files import SessionFile, decode_directory_file, encode_directory_file
from samelog.format.errors import CorruptLog, LogFormatError
from samelog.store.disk.files import OsFileSystem
from samelog.store.disk.json_files import read_json_file, write_json_file

SESSION = SessionFile(session="s", id="0d4a", identity="samelog://client/s", cluster="rt")


def with_bit_turned(data: bytes, bit: int) -> bytes:
    found = bytearray(data)
    found[bit // 8] ^= 1 << bit % 8
    return bytes(found)


def test_what_was_written_is_read() -> None:
    data = encode_checked(SESSION)
    text = checked(data)
    assert msgspec.json.decode(data, type=SessionFile) == SESSION
    assert msgspec.json.decode(text, type=SessionFile) == SESSION
    assert msgspec.json.decode(data, type=dict)["again"] == msgspec.json.decode(text)
    assert (checked(text), is_intact(data), is_intact(text)) == (text, True, True)


def test_a_large_text_stands_in_its_file_once() -> None:
    data = encode_checked({"names": ["x" * 100] * 50})
    assert (checked(data), is_intact(data)) == (data, True)


@pytest.mark.parametrize("data", [b"", b"{}", b'{\n "a": 1\n}\n'])
def test_what_has_no_checksum_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no checksum: an older version"):
        checked(data)


def test_a_checksum_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="checksum is wrong"):
        checked(b',\n "crc32c": x\n}\n')


def test_a_turned_bit_changes_nothing_that_is_read() -> None:
    data = encode_directory_file(SESSION)
    for bit in range(8 * len(data)):
        turned = with_bit_turned(data, bit)
        assert decode_directory_file(turned, "session.json", SessionFile) == SESSION
        assert not is_intact(turned)


def test_a_file_without_its_first_or_last_bytes_is_read() -> None:
    data = encode_directory_file(SESSION)
    half = len(checked(data))
    for damaged in (data[:half], bytes(half) + data[half:], data[: half + 20] + bytes(9)):
        assert decode_directory_file(damaged, "session.json", SessionFile) == SESSION


def test_bits_turned_in_both_texts_are_refused_with_the_remedy() -> None:
    data = encode_directory_file(SESSION)
    half, turned = len(checked(data)), data
    for bit in range(8 * (half - 3)):
        turned = with_bit_turned(with_bit_turned(data, bit), bit + 8 * (half + 9))
        with pytest.raises(LogFormatError, match=r"session\.json"):
            decode_directory_file(turned, "session.json", SessionFile)
    with pytest.raises(CorruptLog, match=r"byte 0: unreadable \(.*\); restore it; until then"):
        decode_directory_file(turned, "session.json", SessionFile)


def test_two_texts_damaged_in_different_places_are_read() -> None:
    """A bit of each in two places, and bytes of each that are zeros."""
    data = encode_directory_file(SESSION)
    half = len(checked(data)) - 3 + len(b',\n "again": ')
    for bit in range(8 * (half - 60)):
        turned = with_bit_turned(with_bit_turned(data, bit), bit + 8 * (half + 40))
        turned = with_bit_turned(turned, bit + 8 * 20)
        assert decode_directory_file(turned, "session.json", SessionFile) == SESSION
    zeros = bytearray(data)
    zeros[5:25] = zeros[half + 50 : half + 70] = bytes(20)
    assert decode_directory_file(bytes(zeros), "session.json", SessionFile) == SESSION


def test_one_damaged_text_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "session.json")
    write_json_file(OsFileSystem(), path, SESSION)
    assert (read_json_file(OsFileSystem(), path, SessionFile), caplog.text) == (SESSION, "")
    Path(path).write_bytes(with_bit_turned(Path(path).read_bytes(), 100))
    for _ in range(2):
        assert read_json_file(OsFileSystem(), path, SessionFile) == SESSION
    assert [record.message for record in caplog.records] == [
        f"{path} is damaged; what it said is read from its two texts"
    ]
