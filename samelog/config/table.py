"""Typed reading of one TOML table, with messages that an operator can act on.

Every complaint names the file, the key, the value found, and what is allowed. Invariant: an unknown
key is an error, with the nearest known one, so that a typo never means "the default".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from types import UnionType
from typing import Any, TypeVar

from samelog.config.document import Document, Text
from samelog.config.schema import Key, Section, joined, known_keys
from samelog.config.values import Address, ConfigError, parse_address, parse_size
from samelog.config.words import nearest
from samelog.format.errors import InvalidName

EnumT = TypeVar("EnumT", bound=Enum)


class Table:
    """One table of a TOML file; every method raises ConfigError.

    Defaults and ranges are those of the table of keys (schema.py), unless a caller knows better.
    """

    def __init__(
        self,
        document: Document,
        name: str = "",
        path: str = "",
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """`name` is for messages, `path` where the table of keys has it."""
        self._document = document
        self._name = name
        self._path = path
        self._values = document.values if values is None else values
        known = known_keys(document.tables, path)
        for key in self._values:
            if key not in known and self._section.anything is None:
                text = f"unknown key{nearest(key, known)} Allowed are: {', '.join(known)}"
                raise self.error(key, text)

    @property
    def file(self) -> str:
        """The file's path, or the URL."""
        return self._document.file

    @property
    def origin(self) -> Text:
        """What it was read from."""
        return self._document.text

    @property
    def _section(self) -> Section:
        return self._document.tables[self._path]

    def _key(self, key: str) -> Key:
        return self._section.anything or self._section.keys[key]

    def error(self, key: str, reason: str) -> ConfigError:
        """What is wrong with a key of this table."""
        at = self._at(key)
        variable = self._document.variables.get(at)
        found = f"{at} (from {variable})" if variable else at
        return ConfigError(f"{self.file}: {found}: {reason}")

    def _at(self, key: str) -> str:
        return joined(self._name, key)

    def _wrong(self, key: str, value: object, allowed: str) -> ConfigError:
        known = self._section.keys.get(key)
        shown = "what is there" if known is not None and known.secret else repr(value)
        return self.error(key, f"{shown} is not {allowed}")

    def _get(self, key: str, kind: type | UnionType, allowed: str, default: Any = None) -> Any:
        value = self._values.get(key, default)
        if value is None:
            raise self.error(key, f"missing; it must be {allowed}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(key, value, allowed)
        return value

    def has(self, key: str) -> bool:
        """Whether the file gives this key."""
        return key in self._values

    def text(self, key: str, check: Callable[[str], str] | None = None) -> str:
        """A text that is not empty; `check` returns it or raises InvalidName."""
        value: str = self._get(key, str, "a text", self._key(key).default)
        if not value:
            raise self._wrong(key, value, "a text of at least one character")
        return self.checked(key, value, check) if check else value

    def checked(self, key: str, text: str, check: Callable[[str], str]) -> str:
        """`text`, found at `key`, as far as `check` accepts it."""
        try:
            return check(text)
        except InvalidName as error:
            raise self.error(key, str(error)) from error

    def texts(self, key: str, *, required: bool = False) -> tuple[str, ...]:
        """A list of texts, none of them empty; without `required` a missing one is an empty one."""
        allowed = "a list of texts"
        values: list[Any] = self._get(key, list, allowed, None if required else [])
        for value in values:
            if not isinstance(value, str) or not value:
                raise self._wrong(key, value, "a text of at least one character")
        return tuple(values)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        known = self._key(key).default if default is None else default
        value: bool = self._get(key, bool, "true or false", known)
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number in the key's range."""
        spec = self._key(key)
        least, most = int(spec.least), int(spec.most)
        allowed = f"a whole number from {least} to {most}"
        value: int = self._get(key, int, allowed, spec.default if default is None else default)
        if not least <= value <= most:
            raise self._wrong(key, value, allowed)
        return value

    def seconds(self, key: str) -> float:
        """A number of seconds in the key's range."""
        spec = self._key(key)
        allowed = f"a number of seconds from {spec.least:g} to {spec.most:g}"
        value: float = self._get(key, int | float, allowed, spec.default)
        if not spec.least <= value <= spec.most:
            raise self._wrong(key, value, allowed)
        return float(value)

    def size(self, key: str, default: int | None = None, least: int | None = None) -> int:
        """A number of bytes in the key's range, as a whole number or a text such as "64Mi"."""
        spec = self._key(key)
        least, most = int(spec.least) if least is None else least, int(spec.most)
        allowed = f'a size from {least} to {most} bytes, such as 1048576, "64Mi" or "1G"'
        value = self._get(key, int | str, allowed, spec.default if default is None else default)
        count = parse_size(value) if isinstance(value, str) else value
        if count is None or not least <= count <= most:
            raise self._wrong(key, value, allowed)
        return int(count)

    def choice(self, key: str, kind: type[EnumT]) -> EnumT:
        """One of an enum's values."""
        members: dict[str, EnumT] = {member.value: member for member in kind}
        allowed = " or ".join(f'"{name}"' for name in members)
        value = self._get(key, str, allowed, self._key(key).plain_default)
        if value not in members:
            raise self._wrong(key, value, allowed + nearest(value, list(members)))
        return members[value]

    def address(self, key: str) -> Address:
        """`host:port`."""
        return self.as_address(key, self.text(key))

    def as_address(self, key: str, text: str) -> Address:
        """`text`, found at `key`, as an address."""
        address = parse_address(text)
        if address is None:
            raise self._wrong(key, text, '"host:port", with a port from 1 to 65535')
        return address

    def path(self, key: str) -> str:
        """An absolute path; in a file it may be relative to the file's own directory."""
        text, origin = self.text(key), self._document.text
        if "\0" in text:
            raise self._wrong(key, text, "a path")
        if origin.is_remote and not os.path.isabs(text):
            raise self._wrong(key, text, "an absolute path, as in a configuration from a URL")
        directory = os.path.dirname(os.path.abspath(origin.place))
        return os.path.normpath(os.path.join(directory, text))

    def existing_file(self, key: str) -> str:
        """The path of a file that exists and can be read."""
        path = self.path(key)
        if not os.path.isfile(path):
            raise self._wrong(key, path, "an existing file")
        if not os.access(path, os.R_OK):
            raise self._wrong(key, path, "a file that this user may read")
        return path

    def table(self, key: str) -> Table:
        """A table inside this one; empty when missing."""
        values = self._get(key, dict, f"a table: [{self._at(key)}]", {})
        return Table(self._document, self._at(key), joined(self._path, key), values)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the file gives."""
        return tuple(self._values)

    def tables(self, key: str) -> list[Table]:
        """A list of tables; empty when missing."""
        allowed = f"a list of tables: [[{self._at(key)}]]"
        values = self._get(key, list, allowed, [])
        for value in values:
            if not isinstance(value, dict):
                raise self._wrong(key, value, allowed)
        path = joined(self._path, key)
        return [
            Table(self._document, f"{self._at(key)}[{index}]", path, value)
            for index, value in enumerate(values)
        ]
