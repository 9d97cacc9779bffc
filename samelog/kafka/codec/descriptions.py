"""What lies in which version of a message, by Kafka's own descriptions.

`descriptions.json` holds those of Apache Kafka 4.1.1 for what is served here, without their
comments (scripts/kafka_descriptions.py). It is read when a message is first met, and a version is
laid out when it is first used.

Invariant: a name, a version's fields and their order are Kafka's; nothing is added here.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

Direction = Literal["request", "response"]
NEEDED: Final = object()
"""The default of a field that has none."""
_EMPTY = {"string": "", "bytes": b"", "bool": False, "uuid": None}
_NEVER = range(0)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NEWEST = 1 << 15


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Field:
    """How one field lies in a message. `kind`: a primitive's name; empty for a structure."""

    name: str
    kind: str
    structure: Structure | None
    is_array: bool
    is_nullable: bool
    default: Any
    tag: int


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """One version of a message, or of a part of it: fields in order, then those with tags."""

    name: str
    is_flexible: bool
    fields: tuple[Field, ...]
    tagged: tuple[Field, ...]
    all_names: frozenset[str]
    """Of every version."""
    type: Any
    """A struct with the fields of this version."""

    def has(self, name: str) -> bool:
        """Whether this version has such a field."""
        return name in self.type.__struct_fields__


@cache
def structure_of(direction: Direction, key: int, version: int) -> Structure:
    """One version of a message. Raises KeyError."""
    found = _descriptions()[direction, key]
    if version not in _versions(found["validVersions"]):
        raise KeyError(f"{found['name']} has no version {version}")
    parts = {each["name"]: each["fields"] for each in found.get("commonStructs", ())}
    is_flexible = version in _versions(found["flexibleVersions"])
    return _Layout(version, parts, is_flexible).structure(found["name"], found["fields"])


@cache
def _descriptions() -> Mapping[tuple[str, int], Any]:
    text = files("samelog.kafka.codec").joinpath("descriptions.json").read_bytes()
    return {(each["type"], each["apiKey"]): each for each in json.loads(text)}


def _versions(text: str) -> range:
    """`0-4`, `3+`, `7` or `none`."""
    first, dash, last = text.partition("-")
    if text == "none":
        return _NEVER
    if text.endswith("+"):
        return range(int(text[:-1]), _NEWEST)
    return range(int(first), int(last if dash else first) + 1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Layout:
    """Lays out one version of a message. `parts`: the structures that it uses more than once."""

    version: int
    parts: Mapping[str, Any]
    is_flexible: bool

    def structure(self, name: str, described: list[Any]) -> Structure:
        """A structure, with all that is in it."""
        own = [self._field(each) for each in described if self._is_in(each["versions"])]
        plain = tuple(field for field in own if field.tag < 0)
        tagged = tuple(sorted((field for field in own if field.tag >= 0), key=lambda f: f.tag))
        names = [(field.name, Any) for field in (*plain, *tagged)]
        made = msgspec.defstruct(name, names, frozen=True)
        every = frozenset(_snake(each["name"]) for each in described)
        return Structure(name, self.is_flexible, plain, tagged, every, made)

    def _is_in(self, versions: str) -> bool:
        return self.version in _versions(versions)

    def _field(self, said: Mapping[str, Any]) -> Field:
        type_ = said["type"].removeprefix("[]")
        described = said.get("fields", self.parts.get(type_))
        kind = "" if described else _kind(type_, said["name"])
        field = Field(
            _snake(said["name"]),
            kind,
            None if kind else self.structure(type_, described),
            is_array=said["type"].startswith("[]"),
            is_nullable=kind == "uuid" or self._is_in(said.get("nullableVersions", "none")),
            default=NEEDED,
            tag=said["tag"] if self._is_in(said.get("taggedVersions", "none")) else -1,
        )
        return dataclasses.replace(field, default=_default(field, said.get("default")))


def _kind(type_: str, name: str) -> str:
    """`error_code` for one of Kafka's codes, `bytes` for records too."""
    if type_ == "int16" and name == "ErrorCode":
        return "error_code"
    return "bytes" if type_ == "records" else type_


def _snake(name: str) -> str:
    return _WORDS.sub("_", name).lower()


def _default(field: Field, said: Any) -> Any:
    """What is meant where the field is not there. Only those with tags always have it."""
    if said is None:
        return _empty(field) if field.tag >= 0 else NEEDED
    if said == "null" or field.kind == "uuid":
        return None
    if field.kind == "bool":
        return said in ("true", True)
    return said if field.kind == "string" else int(str(said), 0)


def _empty(field: Field) -> Any:
    if field.is_array:
        return ()
    if field.structure is None:
        return _EMPTY.get(field.kind, 0)
    parts = (*field.structure.fields, *field.structure.tagged)
    return field.structure.type(
        *(_empty(each) if each.default is NEEDED else each.default for each in parts)
    )
