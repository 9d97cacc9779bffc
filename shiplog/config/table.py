"""Typed reading of one TOML table, with messages that an operator can act on.

Every complaint names the file, the key, the value found, and what is allowed. Invariant: an unknown
key is an error, with the nearest known one, so that a typo never means "the default".
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import Enum
from types import UnionType
from typing import Any, TypeVar

from shiplog.config.sizes import parse_size
from shiplog.config.types import Address, ConfigError
from shiplog.logformat.errors import InvalidName

EnumT = TypeVar("EnumT", bound=Enum)

FILE_LIMIT_BYTES = 1 << 20


def read_toml(path: str) -> dict[str, Any]:
    """The tables of a TOML file; raises ConfigError when it can't be read or parsed."""
    try:
        with open(path, "rb") as file:
            text = file.read(FILE_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: can't read the configuration: {error.strerror}") from error
    if len(text) > FILE_LIMIT_BYTES:
        raise ConfigError(f"{path}: larger than {FILE_LIMIT_BYTES} bytes: not a configuration file")
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def nearest(word: str, words: list[str]) -> str:
    """A hint at the known word that `word` may have been meant to be, or nothing."""
    matches = get_close_matches(word, words, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def parse_address(text: str) -> Address | None:
    """`host:port` or `[IPv6 address]:port`; None if it is not one."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not (colon and host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        return None
    return Address(host, int(port))


class Table:
    """One table of a TOML file; every method raises ConfigError."""

    def __init__(self, file: str, name: str, values: Mapping[str, Any], known: list[str]) -> None:
        self.file = file
        self._name = name
        self._values = values
        for key in values:
            if key not in known:
                text = f"unknown key{nearest(key, known)} Allowed are: {', '.join(known)}"
                raise self.error(key, text)

    def error(self, key: str, reason: str) -> ConfigError:
        """What is wrong with a key of this table."""
        return ConfigError(f"{self.file}: {self._at(key)}: {reason}")

    def _at(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def _wrong(self, key: str, value: object, allowed: str) -> ConfigError:
        return self.error(key, f"{value!r} is not {allowed}")

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
        value: str = self._get(key, str, "a text")
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

    def boolean(self, key: str, default: bool) -> bool:
        """True or false."""
        value: bool = self._get(key, bool, "true or false", default)
        return value

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number between two bounds, both allowed."""
        allowed = f"a whole number from {least} to {most}"
        value: int = self._get(key, int, allowed, default)
        if not least <= value <= most:
            raise self._wrong(key, value, allowed)
        return value

    def seconds(self, key: str, default: float, least: float, most: float) -> float:
        """A number of seconds between two bounds, both allowed."""
        allowed = f"a number of seconds from {least:g} to {most:g}"
        value: float = self._get(key, int | float, allowed, default)
        if not least <= value <= most:
            raise self._wrong(key, value, allowed)
        return float(value)

    def size(self, key: str, default: int, least: int, most: int) -> int:
        """A number of bytes between two bounds, as a whole number or a text such as "64Mi"."""
        allowed = f'a size from {least} to {most} bytes, such as 1048576, "64Mi" or "1G"'
        value = self._get(key, int | str, allowed, default)
        count = parse_size(value) if isinstance(value, str) else value
        if count is None or not least <= count <= most:
            raise self._wrong(key, value, allowed)
        return int(count)

    def choice(self, key: str, default: EnumT) -> EnumT:
        """One of an enum's values."""
        members: dict[str, EnumT] = {member.value: member for member in type(default)}
        value = self._get(key, str, " or ".join(f'"{name}"' for name in members), default.value)
        if value not in members:
            allowed = " or ".join(f'"{name}"' for name in members)
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
        """An absolute path; in the file it may be relative to the file's own directory."""
        directory = os.path.dirname(os.path.abspath(self.file))
        text = self.text(key)
        if "\0" in text:
            raise self._wrong(key, text, "a path")
        return os.path.normpath(os.path.join(directory, text))

    def existing_file(self, key: str) -> str:
        """The path of a file that exists and can be read."""
        path = self.path(key)
        if not os.path.isfile(path):
            raise self._wrong(key, path, "an existing file")
        if not os.access(path, os.R_OK):
            raise self._wrong(key, path, "a file that this user may read")
        return path

    def table(self, key: str, known: list[str]) -> Table:
        """A table inside this one; empty when missing."""
        values = self._get(key, dict, f"a table: [{self._at(key)}]", {})
        return Table(self.file, self._at(key), values, known)

    def open_table(self, key: str) -> Table:
        """A table inside this one whose keys are the operator's own; empty when missing."""
        values = self._get(key, dict, f"a table: [{self._at(key)}]", {})
        return Table(self.file, self._at(key), values, list(values))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the file gives."""
        return tuple(self._values)

    def tables(self, key: str, known: list[str]) -> list[Table]:
        """A list of tables; empty when missing."""
        allowed = f"a list of tables: [[{self._at(key)}]]"
        values = self._get(key, list, allowed, [])
        for value in values:
            if not isinstance(value, dict):
                raise self._wrong(key, value, allowed)
        return [
            Table(self.file, f"{self._at(key)}[{index}]", value, known)
            for index, value in enumerate(values)
        ]
