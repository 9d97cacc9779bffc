"""A configuration file as it was read, with what the environment says instead.

A variable's name follows from the key's (schema.variable). Invariant: a variable that begins as
ours do but names no key is an error, so that a typo never means "the default"; but for those that
Kubernetes makes for a service whose name begins like that.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from samelog.config.depth import DEPTH_MAX, is_too_deep
from samelog.config.schema import (
    VARIABLE_PREFIX,
    Key,
    Kind,
    Reload,
    Schema,
    children,
    joined,
    variable,
)
from samelog.config.values import ConfigError, is_url
from samelog.config.words import nearest

FILE_LIMIT_BYTES = 1 << 20
OTHER_VARIABLES = (
    "SAMELOG_CONFIG",
    "SAMELOG_DIRECTORY",
    "SAMELOG_CONFIG_CA",
    "SAMELOG_CONFIG_TOKEN_FILE",
    "SAMELOG_STATE_DIR",
)
"""Of the Spark data source (docs/spark.md), and of enrolment (docs/enrolment.md)."""
_USER = re.compile(r"://[^/?#]*@")
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)")

Part = str | int


@dataclass(frozen=True, slots=True)
class Place:
    """One key, in one table of a file; `parts` lead to it, numbers in lists of tables."""

    parts: tuple[Part, ...]
    key: Key

    @property
    def name(self) -> str:
        """As messages have it: `kafka.listeners[0].name`."""
        return name_of(self.parts)


@dataclass(frozen=True, slots=True)
class Text:
    """A configuration as it was read. `place`: the file's path, or a URL; `tag`: what the server
    calls this version; `problem`: why it is not the newest.
    """

    place: str
    data: bytes = field(repr=False)
    tag: str = ""
    problem: str = ""

    @property
    def is_remote(self) -> bool:
        """Whether it came from a URL."""
        return is_url(self.place)

    @property
    def shown(self) -> str:
        """The place as messages have it: without what a URL asks for, which may be a secret."""
        return shown_place(self.place)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file and the environment say; `variables`: of the keys that the environment gives."""

    text: Text
    tables: Schema
    values: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Where it is from, as messages have it."""
        return self.text.shown


@dataclass(frozen=True, slots=True)
class Setting:
    """A key as it counts: its value (None: it is left out), and where that comes from."""

    name: str
    value: Any
    source: str
    key: Key

    @property
    def reload(self) -> Reload:
        """What a running process takes over."""
        return self.key.reload


def name_of(parts: tuple[Part, ...]) -> str:
    """The name of what such parts lead to."""
    text = ""
    for part in parts:
        text = f"{text}[{part}]" if isinstance(part, int) else joined(text, part)
    return text


def absolute_place(place: str) -> str:
    """The same place, wherever a process is that is told of it."""
    return place if is_url(place) else os.path.abspath(place)


def shown_place(place: str) -> str:
    """A path or URL as messages have it: without what may be a secret, as are a password, and what
    is behind ? or #.
    """
    if not is_url(place):
        return place
    return _USER.sub("://", re.split("[?#]", place, maxsplit=1)[0], count=1)


def document_of(
    text: Text, tables: Schema, others: Schema, environ: Mapping[str, str] | None = None
) -> Document:
    """What a text and the environment say. `others`: of another kind of file, whose variables may
    be there too. Raises ConfigError.
    """
    file, values = text.shown, parse_toml(text)
    found = os.environ if environ is None else environ
    ours = {name: text for name, text in found.items() if name.startswith(VARIABLE_PREFIX)}
    variables: dict[str, str] = {}
    if ours:
        found_places = places(tables, values)
        known = {variable(each.name): each for each in found_places if not each.key.secret}
        for name, said in ours.items():
            if name in known:
                _put(values, known[name].parts, _parsed(said, known[name].key.kind))
                variables[known[name].name] = name
            else:
                _check_unknown(file, name, list(known), (tables, others))
    return Document(text, tables, values, variables)


def read_file(path: str) -> Text:
    """A file's text; raises ConfigError when it can't be read."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can't read the configuration: {error.strerror}") from error
    if len(data) > FILE_LIMIT_BYTES:
        raise ConfigError(f"{path}: larger than {FILE_LIMIT_BYTES} bytes: not a configuration file")
    return Text(path, data)


def parse_toml(text: Text) -> dict[str, Any]:
    """The tables of a text; raises ConfigError."""
    try:
        decoded = text.data.decode()
        if is_too_deep(decoded):
            raise ConfigError(f"{text.shown}: nests deeper than {DEPTH_MAX}: not a configuration")
        return tomllib.loads(decoded)
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError; a number of 5000 digits
        raise ConfigError(f"{text.shown}: not valid TOML: {error}") from error


def places(
    tables: Schema, values: Mapping[str, Any], path: str = "", parts: tuple[Part, ...] = ()
) -> Iterator[Place]:
    """Every key that may stand in a file which has these lists of tables, in the table's order."""
    section = tables[path]
    for name, key in section.keys.items():
        yield Place((*parts, name), key)
    if section.anything is not None:
        yield from (Place((*parts, name), section.anything) for name in values)
    for child in children(tables, path):
        name = child.name.rpartition(".")[2]
        inside = values.get(name)
        if not child.many:
            below = inside if isinstance(inside, dict) else {}
            yield from places(tables, below, child.name, (*parts, name))
            continue
        for index, each in enumerate(inside if isinstance(inside, list) else []):
            below = each if isinstance(each, dict) else {}
            yield from places(tables, below, child.name, (*parts, name, index))


def settings(document: Document) -> list[Setting]:
    """Every key as it counts."""
    return [_setting(document, place) for place in places(document.tables, document.values)]


def _setting(document: Document, place: Place) -> Setting:
    found = _get(document.values, place.parts)
    name, key = place.name, place.key
    if name in document.variables:
        return Setting(name, found, document.variables[name], key)
    if found is not None:
        return Setting(name, found, document.file, key)
    return Setting(name, key.plain_default, "default", key)


def _get(values: Any, parts: tuple[Part, ...]) -> Any:
    """What stands at a place; None: nothing."""
    for part in parts:
        if isinstance(values, dict):
            values = values.get(part)
        elif isinstance(values, list) and isinstance(part, int):
            values = values[part]
        else:
            return None
    return values


def _put(values: Any, parts: tuple[Part, ...], value: object) -> None:
    """Let a value stand at a place, unless a file has something else than a table on the way:
    whoever reads the file then says so.
    """
    for part in parts[:-1]:
        values = values[part] if isinstance(part, int) else values.setdefault(part, {})
        if not isinstance(values, dict | list):
            return
    if isinstance(values, dict):
        values[parts[-1]] = value


def _parsed(text: str, kind: Kind) -> object:
    """A variable's text as the value it is meant to be; as it is, if it is none."""
    if kind is Kind.TEXTS:
        return [part.strip() for part in text.split(",")] if text.strip() else []
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text, text)
    if kind in (Kind.INTEGER, Kind.SECONDS):
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
    return text


def _check_unknown(file: str, name: str, known: list[str], schemas: tuple[Schema, ...]) -> None:
    if name in OTHER_VARIABLES or _SERVICE_LINK.search(name):
        return
    patterns = (_pattern(section, key) for tables in schemas for section, key in _all(tables))
    shapes = {pattern for pattern in patterns if re.fullmatch(pattern, name)}
    own = {_pattern(section, key) for section, key in _all(schemas[0])}
    if shapes & own:
        text = "the file has no such table: variables change those that are there, and add none"
        raise ConfigError(f"{file}: environment variable {name}: {text}")
    if not shapes:
        hint = nearest(name, known) or "; docs/configuration.md has all names"
        raise ConfigError(f"{file}: environment variable {name} names no key{hint}")


def _all(tables: Schema) -> Iterator[tuple[str, str]]:
    """(path of the table, key) of every key with a variable, `[]` behind each list of tables."""
    for path, section in tables.items():
        words = path.split(".") if path else []
        shown = ""
        for index, word in enumerate(words):
            shown += ("." if shown else "") + word
            shown += "[]" if tables[".".join(words[: index + 1])].many else ""
        yield from ((shown, name) for name, key in section.keys.items() if not key.secret)


def _pattern(path: str, key: str) -> str:
    """A regular expression of the variable's name."""
    return variable(f"{path}.{key}".replace("[]", ".0")).replace("_0_", r"_\d+_")


def variable_names(tables: Schema) -> dict[str, str]:
    """By key, with `[]` behind each list of tables: the variable, with N for a number there."""
    return {
        f"{path}.{key}".lstrip("."): variable(f"{path}.{key}".replace("[]", ".n"))
        for path, key in _all(tables)
    }
