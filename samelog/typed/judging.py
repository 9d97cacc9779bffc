"""Which records of a batch do not fit their topic's schema. Pure.

A record is judged by the version of its mark, and without one by the newest. Records are looked at
a few thousand at a time, so that what a small batch unpacks to is never a value of Python each.
Invariant: a verdict depends on nothing but the bytes, the versions and the libraries; a record that
is taken is one that readers read (docs/typed.md, T11, T15, T19).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from samelog.format import _kernels as kernels
from samelog.format.compression import decompress
from samelog.typed.misfits import Misfit, beginning
from samelog.typed.schema import Schema, SchemaFormat
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import FOREIGN, NO_VERSION, SCHEMA_HEADER, marked_version

TEXT_CHARACTERS = 255
TOLD = 16
"""So many records of a batch are told of in words."""
STEP = 4096
_MARK = SCHEMA_HEADER.encode()
_Values = Sequence[bytes | None]


class BatchMisfits(msgspec.Struct, frozen=True, array_like=True):
    """The records of a batch that do not fit, by their number in it, in order; and of the first
    ones number, column, expected and found.
    """

    records: list[int] = []
    told: list[tuple[int, str, str, str]] = []


FITS = BatchMisfits()


class Terms(msgspec.Struct, frozen=True, array_like=True):
    """What else is asked of a record than that it fits."""

    oldest: int = 1
    """The version that it is of, or a newer one (`schema.accept`)."""
    needs_mark: bool = False
    """That it says its version: what is staged is judged long before it is merged."""


PLAIN = Terms()


def judge_batch(
    schemas: Mapping[int, Schema], newest: int, batch: bytes, terms: Terms = PLAIN
) -> BatchMisfits:
    """What of a batch does not fit. Raises LogFormatError, ArrowMissing."""
    columns = kernels.decode_columns(batch, 0, len(batch), decompress, verify_crc=False)
    marks = _marks(columns, schemas)
    found: list[Misfit] = []
    for start in range(0, columns.rows, STEP):
        values = _values(columns.values, start, min(start + STEP, columns.rows))
        for version, places in _together(marks, start, len(values)).items():
            given = values if len(places) == len(values) else [values[place] for place in places]
            misfits = _on_terms(terms, version, given)
            if misfits is None:
                misfits = _of_version(schemas, newest, version, given, oldest=terms.oldest)
            found += [replace(each, index=start + places[each.index]) for each in misfits]
    if not found:
        return FITS
    found.sort(key=_index)
    told = [_told(each) for each in found[:TOLD]]
    return BatchMisfits([each.index for each in found], told)


def _index(misfit: Misfit) -> int:
    return misfit.index


def _told(misfit: Misfit) -> tuple[int, str, str, str]:
    """A value may name a member as long as it likes."""
    short = slice(TEXT_CHARACTERS)
    return misfit.index, misfit.column[short], misfit.expected[short], misfit.found


def _values(strand: kernels.Strand, start: int, stop: int) -> _Values:
    """Some values of a column, each as bytes of its own."""
    places = memoryview(strand.offsets).cast("i")[start : stop + 1]
    first = places[0]
    data = bytes(memoryview(strand.data)[first : places[-1]])
    values: list[bytes | None]
    values = [data[low - first : high - first] for low, high in pairwise(places)]
    if strand.nulls:
        for place in _nulls(strand, start, stop):
            values[place - start] = None
    return values


def _nulls(strand: kernels.Strand, start: int, stop: int) -> Iterator[int]:
    bits = memoryview(strand.validity)
    return (row for row in range(start, stop) if not bits[row >> 3] >> (row & 7) & 1)


# --- versions -------------------------------------------------------------------------------------

_Said = int | Mapping[int, int]
"""The version that all records say, or of those that say one, by their number."""


def _marks(columns: kernels.Columns, schemas: Mapping[int, Schema]) -> _Said:
    """The last mark of a record counts, as Kafka's clients take headers."""
    count = columns.header_keys.rows
    if not count:
        return {}
    names, said = _values(columns.header_keys, 0, count), _values(columns.header_values, 0, count)
    places = memoryview(columns.header_offsets).cast("i").tolist()
    one_each = count == columns.rows and places == [*range(count + 1)]
    if one_each and {*names} == {_MARK} and len({*said}) == 1:
        return marked_version(said[0], schemas)
    return _by_record(places, names, said, schemas)


def _by_record(
    places: Sequence[int], names: _Values, said: _Values, schemas: Mapping[int, Schema]
) -> Mapping[int, int]:
    meant = {
        mark: marked_version(mark, schemas)
        for name, mark in zip(names, said, strict=True)
        if name == _MARK
    }
    owners = (record for record, ends in enumerate(pairwise(places)) for _ in range(*ends))
    named = zip(owners, names, said, strict=True)
    return {record: meant[mark] for record, name, mark in named if name == _MARK}


UNMARKED = -1


def _together(marks: _Said, start: int, count: int) -> Mapping[int, Sequence[int]]:
    """Which of some records are judged by each version; UNMARKED: by the newest."""
    if isinstance(marks, int):
        return {marks: range(count)}
    if not marks:
        return {UNMARKED: range(count)}
    together: dict[int, list[int]] = {}
    for place in range(count):
        together.setdefault(marks.get(start + place, UNMARKED), []).append(place)
    return together


def _on_terms(terms: Terms, version: int, values: _Values) -> list[Misfit] | None:
    """None of these records counts, whatever is in it; None: it is to be seen which do."""
    if version == UNMARKED and terms.needs_mark:
        return _none_of(values, "a record that says its version", "no mark")
    if NO_VERSION < version < terms.oldest:
        return _none_of(values, f"a record of version {terms.oldest} or newer", f"{version}")
    return None


def _of_version(
    schemas: Mapping[int, Schema], newest: int, version: int, values: _Values, *, oldest: int
) -> list[Misfit]:
    """What does not fit a version; the indexes are those of the values."""
    if version == FOREIGN:
        wanted = f"a record of one of the topic's versions (1 to {newest})"
        return _none_of(values, wanted, "a mark with another schema's digest")
    schema = schemas.get(newest if version == UNMARKED else version)
    if schema is None:
        wanted = f"a record with a version that the topic has (1 to {newest})"
        return _none_of(values, wanted, "a mark of another one")
    misfits = codec_of(schema).check(values)
    if version == UNMARKED and misfits and schema.format is SchemaFormat.ARROW:
        older = _of_arrow(schemas, oldest)
        misfits = [each for each in misfits if not _fits_any(older, values[each.index])]
    return misfits


def _of_arrow(schemas: Mapping[int, Schema], oldest: int) -> list[Schema]:
    accepted = [each for number, each in schemas.items() if number >= oldest]
    return [each for each in accepted if each.format is SchemaFormat.ARROW]


def _none_of(values: _Values, wanted: str, found: str) -> list[Misfit]:
    """A null value fits every version."""
    return [
        Misfit(place, "", wanted, f"{found}: {beginning(value)}")
        for place, value in enumerate(values)
        if value is not None
    ]


def _fits_any(schemas: Sequence[Schema], value: bytes | None) -> bool:
    """An Arrow stream without a mark says its columns, so it has the version with these."""
    return any(not codec_of(schema).check([value]) for schema in schemas)
