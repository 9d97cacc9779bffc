"""A configuration file as it was read, with what the environment says instead.

`settings` are keys as they count: their values, where these come from, and what changes while a
process runs.

Invariant: a text that is larger or nests deeper than a configuration may is refused before anybody
parses it.
Also: what two versions of a configuration both leave out, or say alike, is no change, wherever
it is said.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from samelog.config.schema.environment import KeyPath, apply_variables, key_paths
from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    Inlined,
    Reload,
    Subtable,
    TableSpec,
    annotations_of,
    keys_of,
)
from samelog.config.values import ConfigError, is_url
from samelog.format.texts import decode_file

StructT = TypeVar("StructT", bound=ConfigTable)


@dataclass(frozen=True, slots=True)
class Setting:
    """A key as it counts: its value (None: it is left out), and where that comes from."""

    name: str
    value: Any
    source: str
    key: ConfigKey


def settings(document: ConfigDocument) -> list[Setting]:
    """Every key as it counts."""
    return [_setting(document, path) for path in key_paths(document.spec, document.values)]


def _setting(document: ConfigDocument, path: KeyPath) -> Setting:
    found, name = path.find(document.values), path.name
    if found is None:
        return Setting(name, path.key.file_default, "default", path.key)
    return Setting(name, found, document.variables.get(name, document.file), path.key)


def changed_settings(before: ConfigDocument, after: ConfigDocument) -> list[Setting]:
    """The settings that differ: with their new values, or the old one if a setting is gone."""
    old = {each.name: each for each in settings(before)}
    new = {each.name: each for each in settings(after)}
    return [
        new.get(name, each)
        for name, each in (old | new).items()
        if name not in old or name not in new or old[name].value != new[name].value
    ]


def with_reloadable(config: StructT, found: StructT) -> StructT:
    """What can change while a process runs from `found`, the rest as it is."""
    fresh = {}
    for mark in annotations_of(type(config)):
        name = mark.attribute
        old, new = getattr(config, name), getattr(found, name)
        match mark:
            case ConfigKey(reload=Reload.YES):
                fresh[name] = new
            case Subtable(is_many=True, struct=struct):
                if all(key.reload is Reload.YES for key in keys_of(struct)):
                    fresh[name] = new
            case Subtable() | Inlined() if old is not None and new is not None:
                fresh[name] = with_reloadable(old, new)
    return replace(config, **fresh)  # type: ignore[type-var]  # subclasses are dataclasses


FILE_LIMIT_BYTES = 1 << 20
DEPTH_MAX = 32
"""What samelog reads has 4 levels."""

_QUOTED = re.compile(
    r'"""(?:\\[\s\S]?|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''[\s\S]*?(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*'?"
    r"|\#[^\n]*"
)
"""Strings and comments; those without an end go on to where a parser gives up."""
_BRACKET = re.compile(r"[\[\]{}]")
_BETWEEN_KEYS = re.compile(r"[=,\[\]{}\n]")
_USER = re.compile(r"://[^/?#]*@")


@dataclass(frozen=True, slots=True)
class ConfigText:
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
class ConfigDocument:
    """What a file and the environment say; `variables`: of the keys that the environment gives."""

    text: ConfigText
    spec: TableSpec
    values: Mapping[str, Any]
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Where it is from, as messages have it."""
        return self.text.shown


def absolute_place(place: str) -> str:
    """The path or URL in a form that is the same in every process of this host."""
    return place if is_url(place) else os.path.abspath(place)


def shown_place(place: str) -> str:
    """A path or URL as messages have it: without what may be a secret, as are a password, and what
    is behind ? or #.
    """
    if not is_url(place):
        return place
    return _USER.sub("://", re.split("[?#]", place, maxsplit=1)[0], count=1)


def document_of(
    text: ConfigText, specs: tuple[TableSpec, ...], environ: Mapping[str, str] | None = None
) -> ConfigDocument:
    """What a text and the environment (None: this process's) say. `specs`: of this kind of file,
    then of others, whose variables may be there too. Raises ConfigError.
    """
    values = parse_toml(text)
    found = os.environ if environ is None else environ
    variables = apply_variables(values, found, text.shown, specs)
    return ConfigDocument(text, specs[0], values, variables)


def read_file(path: str) -> ConfigText:
    """A file's text; raises ConfigError when it can't be read."""
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe could take for ever
        raise ConfigError(f"{path}: can't read the configuration: not a regular file")
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can't read the configuration: {error.strerror}") from error
    if len(data) > FILE_LIMIT_BYTES:
        raise ConfigError(f"{path}: larger than {FILE_LIMIT_BYTES} bytes: not a configuration file")
    return ConfigText(path, data)


def parse_toml(text: ConfigText) -> dict[str, Any]:
    """The tables of a text; raises ConfigError."""
    try:
        decoded = decode_file(text.data)
        if is_too_deep(decoded):
            raise ConfigError(f"{text.shown}: nests deeper than {DEPTH_MAX}: not a configuration")
        return tomllib.loads(decoded)
    except ValueError as error:  # also not UTF-8, and a number of 5000 digits
        raise ConfigError(f"{text.shown}: not valid TOML: {error}") from error


def is_too_deep(text: str) -> bool:
    """Whether lists, tables or dotted keys of TOML go deeper than DEPTH_MAX.

    A parser in Python needs its stack for each level of lists, and memory that grows with the
    square of a dotted key's length. No string, comment or PEM text counts; the time is linear in
    the text's length.
    """
    bare = _QUOTED.sub("", text)
    if any(piece.count(".") > DEPTH_MAX for piece in _BETWEEN_KEYS.split(bare)):
        return True
    depth = 0
    for bracket in map(re.Match.group, _BRACKET.finditer(bare)):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > DEPTH_MAX:
            return True
    return False
