"""The kinds of values that keys have: how each is read, written, documented.

Invariant: what a kind has written, it reads as an equal value. Nothing here touches a disk: paths
are made absolute, and files looked for, by reader.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from typing import Any

from samelog.config.values import Address, is_url, parse_address, parse_size

PlainValue = str | int | float | bool | list[Any]
"""What TOML and JSON can say."""
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


class WrongValue(Exception):
    """A value is not of its kind; the message says what it must be instead."""


class BadValue(Exception):
    """A value is of its kind and cannot be used; the message says why."""


class PathRule(Enum):
    """What there must be at a path."""

    ANYTHING = "anything"
    FILE = "a file that can be read"
    PRIVATE_FILE = "a file that nobody else can read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueKind:
    """One kind of value.

    `documented`: what the documentation calls it, `expected`: what messages ask for; `read` gives
    the value of a TOML value, or raises WrongValue, BadValue or InvalidName; `write` undoes that;
    `show` gives a default for the documentation; `from_variable` gives the TOML value that the text
    of an environment variable means, or the text itself. `path`: it is one, perhaps relative.
    """

    documented: str
    expected: str
    read: Callable[[Any], Any]
    write: Callable[[Any], PlainValue]
    json_schema: dict[str, Any]
    show: Callable[[Any], str] = json.dumps
    from_variable: Callable[[str], object] = str
    path: PathRule | None = None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint at the known word that `word` may have been meant to be, or nothing."""
    matches = get_close_matches(word, known, n=1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongValue("a text")
    if not value:
        raise WrongValue("a text of at least one character")
    return value


def _address(value: Any) -> Address:
    address = parse_address(_text(value))
    if address is None:
        raise WrongValue('"host:port", with a port from 1 to 65535')
    return address


def _path(value: Any) -> str:
    if "\0" in _text(value):
        raise WrongValue("a path")
    return str(value)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("true or false")
    return value


TEXT = ValueKind(
    documented="text",
    expected="a text",
    read=_text,
    write=str,
    json_schema={"type": "string", "minLength": 1},
)
ADDRESS = replace(TEXT, documented="host:port", read=_address)
PATH = replace(TEXT, documented="path", read=_path, path=PathRule.ANYTHING)
FILE = replace(PATH, documented="path of a file", path=PathRule.FILE)
PRIVATE_FILE = replace(FILE, path=PathRule.PRIVATE_FILE)
BOOLEAN = ValueKind(
    documented="true or false",
    expected="true or false",
    read=_boolean,
    write=bool,
    json_schema={"type": "boolean"},
    from_variable=lambda text: {"true": True, "false": False}.get(text, text),
)


def checked_name(check: Callable[[str], str]) -> ValueKind:
    """A text that `check` returns, or refuses with InvalidName."""
    return replace(TEXT, read=lambda value: check(_text(value)))


def path_or_url(check: Callable[[str], str]) -> ValueKind:
    """A path, or a URL that `check` returns, or refuses with InvalidName."""

    def read(value: Any) -> str:
        return check(value) if is_url(_text(value)) else _path(value)

    return replace(PATH, documented="text", read=read)


def _in_range(expected: str, least: float, most: float, *types: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        is_number = isinstance(value, types) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise WrongValue(expected)
        return value

    return read


def _number_of(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def integer(least: int, most: int) -> ValueKind:
    """A whole number in a range."""
    expected = f"a whole number from {least} to {most}"
    return ValueKind(
        documented=f"whole number from {least} to {most}",
        expected=expected,
        read=_in_range(expected, least, most, int),
        write=int,
        json_schema={"type": "integer", "minimum": least, "maximum": most},
        from_variable=_number_of,
    )


def seconds(least: float, most: float) -> ValueKind:
    """A number of seconds, whole or not, in a range."""
    expected = f"a number of seconds from {least:g} to {most:g}"
    in_range = _in_range(expected, least, most, int, float)
    return ValueKind(
        documented=f"seconds from {least:g} to {most:g}",
        expected=expected,
        read=lambda value: float(in_range(value)),
        write=float,
        json_schema={"type": "number", "minimum": least, "maximum": most},
        from_variable=_number_of,
    )


def size(least: int, most: int) -> ValueKind:
    """A number of bytes in a range, as a whole number or a text such as "64Mi"."""
    whole = integer(least, most)
    expected = f'a size from {least} to {most} bytes, such as 1048576, "64Mi" or "1G"'
    in_range = _in_range(expected, least, most, int)
    text = {"type": "string", "pattern": r"^\d+ ?([kMGTP]|[KMGTP]i)?$"}
    return replace(
        whole,
        documented=f"size in bytes from {size_text(least)} to {size_text(most)}",
        expected=expected,
        read=lambda value: in_range(parse_size(value) if isinstance(value, str) else value),
        json_schema={"anyOf": [whole.json_schema, text]},
        show=size_text,
        from_variable=str,
    )


def choice(choices: type[Enum]) -> ValueKind:
    """One of an enum's values."""
    known = {str(each.value): each for each in choices}
    expected = " or ".join(f'"{each}"' for each in known)

    def read(value: Any) -> Enum:
        if not isinstance(value, str):
            raise WrongValue(expected)
        if value not in known:
            raise WrongValue(expected + did_you_mean(value, known))
        return known[value]

    return ValueKind(
        documented=expected,
        expected=expected,
        read=read,
        write=lambda value: str(value.value),
        json_schema={"enum": list(known)},
    )


def list_of(each: ValueKind, *, distinct: bool = False, needed: str = "") -> ValueKind:
    """A list of texts, each of another kind; `distinct`: none is there twice; `needed`: it must not
    be empty, and what to say if it is.
    """

    def read_one(value: Any) -> Any:
        try:
            return each.read(_text(value))
        except WrongValue as error:
            raise BadValue(f"{value!r} is not {error}") from error

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise WrongValue("a list of texts")
        if needed and not value:
            raise BadValue(needed)
        found = tuple(map(read_one, value))
        if distinct:
            check_distinct(map(str, found))
        return found

    return ValueKind(
        documented="list of texts",
        expected="a list of texts",
        read=read,
        write=lambda values: [each.write(value) for value in values],
        json_schema={"type": "array", "items": each.json_schema},
        from_variable=lambda text: [part.strip() for part in text.split(",") if text.strip()],
    )


def check_distinct(texts: Iterable[str]) -> None:
    """Raises BadValue if a text is there twice."""
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise BadValue(f"{text!r} is there twice")
        seen.add(text)


def size_text(count: int) -> str:
    """A number of bytes as people write it."""
    power = 0
    while count and count % 1024 == 0 and power < len(_UNITS) - 1:
        count, power = count // 1024, power + 1
    return f"{count}{_UNITS[power]}"
