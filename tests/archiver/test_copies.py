"""Names, manifests and ranges of copies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samelog.archiver.copies.manifests import (
    FORMATS,
    CopiedFile,
    CopiedLog,
    CopyFault,
    CopyJob,
    Manifest,
    RestoreRange,
    choose,
    decode_manifest,
    encode_manifest,
    format_bits,
    formats_in,
    formats_of,
    parse_formats,
)

COPIED = CopiedLog("c", "trades", "t" * 32, 3)


def manifest(first: int, behind: int, *, first_ms: int = 0, last_ms: int = 0) -> Manifest:
    """A copy of these offsets."""
    return Manifest(
        log=COPIED,
        first_offset=first,
        next_offset=behind,
        size=100,
        sha256="00" * 32,
        first_ms=first_ms,
        last_ms=last_ms,
        begin_checksum=1,
        end_checksum=2,
        copied_ms=7,
        files={"segments": CopiedFile(100, "00" * 32)},
    )


def job(**changes: object) -> CopyJob:
    """The job that such a copy of offsets 0 to 9 was made by."""
    values: dict[str, object] = {
        "url": "u",
        "path": "p",
        "log": COPIED,
        "base": 0,
        "next_offset": 10,
        "size": 100,
        "last_ms": 0,
        "begin_checksum": 1,
        "end_checksum": 2,
        "formats": FORMATS,
    }
    return CopyJob(**{**values, **changes})  # type: ignore[arg-type]


def test_names_are_a_kafka_directory_and_one_directory_of_parquet() -> None:
    assert COPIED.file("segments", 42) == (
        f"c/trades/{'t' * 32}/segments/3/00000000000000000042.log"
    )
    assert (
        COPIED.file("parquet", 42) == f"c/trades/{'t' * 32}/parquet/3-00000000000000000042.parquet"
    )
    assert COPIED.manifest(42).startswith(COPIED.manifests + "/")


@pytest.mark.parametrize("text", ["", "segments,", "segments,segments", "csv", "none,parquet"])
def test_unknown_formats_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_formats(text)


def test_a_topic_says_its_formats_or_the_configuration_does() -> None:
    assert formats_of({}, ("segments",)) == ("segments",)
    assert formats_of({"archive_copy": "none"}, ("segments",)) == ()
    assert formats_of({"archive_copy": "parquet,segments"}, ()) == FORMATS
    for formats in ((), ("segments",), ("parquet",), FORMATS):
        assert formats_in(format_bits(formats)) == formats


def test_a_manifest_survives_and_names_its_bytes() -> None:
    known = manifest(0, 10)
    assert decode_manifest(encode_manifest(known), "m") == known
    assert known.is_of(job())
    for changes in (
        {"base": 1},
        {"next_offset": 11},
        {"size": 99},
        {"begin_checksum": 0},
        {"end_checksum": 0},
        {"log": msgspec.structs.replace(COPIED, topic_id="other")},
    ):
        assert not known.is_of(job(**changes))


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"", "no manifest"), (b"[]", "no manifest"), (b'{"format_version": 2}', "version 2")],
)
def test_what_is_no_manifest_is_said(data: bytes, why: str) -> None:
    with pytest.raises(CopyFault, match=why):
        decode_manifest(data, "m")


@given(st.binary(max_size=100))
def test_whatever_bytes_are_no_manifest(data: bytes) -> None:
    with pytest.raises(CopyFault):
        decode_manifest(data, "m")


COPIES = [manifest(10 * n, 10 * n + 10, first_ms=100 * n, last_ms=100 * n + 99) for n in range(5)]


@pytest.mark.parametrize(
    ("wanted", "bases"),
    [
        (RestoreRange(), [0, 10, 20, 30, 40]),
        (RestoreRange(10, 20), [10]),
        (RestoreRange(19, 21), [10, 20]),
        (RestoreRange(first=35), [30, 40]),
        (RestoreRange(behind=1), [0]),
        (RestoreRange(from_ms=199, to_ms=200), [10, 20]),
        (RestoreRange(from_ms=350), [30, 40]),
        (RestoreRange(first=15, to_ms=250), [10, 20]),
    ],
)
def test_the_copies_of_a_range(wanted: RestoreRange, bases: list[int]) -> None:
    assert [each.first_offset for each in choose(COPIES, wanted)] == bases


@pytest.mark.parametrize(
    ("known", "wanted", "why"),
    [
        ([], RestoreRange(), "no copy holds"),
        (COPIES, RestoreRange(first=50), "no copy holds"),
        (COPIES, RestoreRange(behind=51), "no copy of offsets 50 to 50"),
        (COPIES[2:], RestoreRange(first=5), "no copy of offsets 5 to 19"),
        ([COPIES[0], COPIES[2]], RestoreRange(), "no copy of offsets 10 to 19"),
    ],
)
def test_what_was_not_copied_is_named(
    known: list[Manifest], wanted: RestoreRange, why: str
) -> None:
    with pytest.raises(CopyFault, match=why):
        choose(known, wanted)


def test_a_gap_outside_of_the_range_matters_not() -> None:
    assert choose([COPIES[0], *COPIES[2:]], RestoreRange(first=20)) == COPIES[2:]


def test_timestamps_need_not_rise() -> None:
    """What lies between two copies of a range belongs to it."""
    known = [
        manifest(0, 10, first_ms=100, last_ms=200),
        manifest(10, 20, first_ms=5, last_ms=6),
        manifest(20, 30, first_ms=100, last_ms=200),
    ]
    assert choose(known, RestoreRange(from_ms=150)) == known
