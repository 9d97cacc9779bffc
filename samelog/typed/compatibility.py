"""Whether who has one version of a schema can read what was written with another. Pure.

Avro's rules of resolution, with the modes of Confluent's registry: a new version is compared with
the newest one (docs/typed.md, "Compatibility"). The replicated state machine decides by it, so what
it answers may only change with a feature level. Invariant: if `problems_reading` finds nothing,
every row of the writer gives a row of the reader, but for bytes that are no text; tests hold it
against reading itself.
"""

from __future__ import annotations

from enum import Enum

from samelog.typed.schema import Column, Schema
from samelog.typed.types import ColumnType, TypeKind

COMPATIBILITY = "schema.compatibility"
"""The topic setting; a mode's name."""


class Compatibility(Enum):
    """Who can read whose records, of two versions that follow each other."""

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


BY_DEFAULT = Compatibility.BACKWARD
"""As in Confluent's registry."""


def problems_between(mode: Compatibility, new: Schema, old: Schema) -> list[str]:
    """Why a new version may not follow an old one; empty if it may."""
    if mode is Compatibility.NONE:
        return []
    if new.format is not old.format:
        return [f"values would be {new.format.value}, and are {old.format.value}"]
    problems = []
    if mode is not Compatibility.FORWARD:
        found = problems_reading(new, old)
        problems += [f"a reader with the new version cannot read the old one: {p}" for p in found]
    if mode is not Compatibility.BACKWARD:
        found = problems_reading(old, new)
        problems += [f"a reader with the old version cannot read the new one: {p}" for p in found]
    return problems


def problems_reading(reader: Schema, writer: Schema) -> list[str]:
    """Why rows of the writer's schema cannot all be rows of the reader's."""
    problems = []
    for column in reader.columns:
        written = writer.by_name.get(column.name)
        problem = _missing(column) if written is None else _differs(column, written)
        if problem is not None:
            problems.append(f"column {column.name!r} {problem}")
    return problems


def _missing(column: Column) -> str | None:
    return None if column.may_lack else "is not there, is not nullable and has no default"


def _differs(column: Column, written: Column) -> str | None:
    if written.is_nullable and not column.is_nullable:
        return "may be null"
    if not widens(written.type, column.type):
        return f"is {written.type.text}, which is not read as {column.type.text}"
    return None


def widens(written: ColumnType, read: ColumnType) -> bool:
    """Whether every value of one type is read as the other: Avro's promotions."""
    if written.text == read.text:
        return True
    pair = (written.kind, read.kind)
    if pair == (TypeKind.INTEGER, TypeKind.INTEGER):
        (low, high), (least, most) = written.limits, read.limits
        return least <= low and high <= most
    if pair in ((TypeKind.INTEGER, TypeKind.FLOAT), (TypeKind.FLOAT, TypeKind.FLOAT)):
        return read.bits == 64
    if (
        pair == (TypeKind.LIST, TypeKind.LIST)
        and written.item is not None
        and read.item is not None
    ):
        return widens(written.item, read.item)
    return pair in _PROMOTED


_PROMOTED = {(TypeKind.STRING, TypeKind.BINARY), (TypeKind.BINARY, TypeKind.STRING)}
