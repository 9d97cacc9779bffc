"""Values as what JSON has, and as its text; and such text as values.

Invariant: the shape follows from the type alone; `samelog.http.shapes` describes the same one.
"""

from __future__ import annotations

import base64
import codecs
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum, IntEnum
from functools import partial
from typing import Any

import msgspec

from samelog.format.steps import StepWork

DEPTH_MAX = 32
SCALAR_MAX = 512 << 10
"""Characters of one text or number in JSON, escapes included. The longest one that a request takes
is a schema, whose body has no more bytes.
"""
_SPACE = re.compile(r"[ \t\n\r]*")
_INTEGERS = range(-(1 << 63), 1 << 64)
_dumps = partial(json.dumps, ensure_ascii=False)


def to_json(value: Any) -> Any:
    """`value` as dicts, lists, texts and numbers; an IntEnum becomes its name in lower case, bytes
    base64.
    """
    match value:
        case IntEnum():
            return value.name.lower()
        case Enum():
            return to_json(value.value)
        case datetime():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(key): to_json(item) for key, item in value.items()}
    fields = _fields(value)
    if fields is not None:
        return {name: to_json(item) for name, item in fields.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return value


def encode_steps(value: Any, dumps: Callable[[Any], str] = _dumps) -> StepWork[str]:
    """Encode `to_json(value)` as text, one short piece a step; `dumps` encodes single values."""
    parts: list[str] = []
    for part in _encoded(value, dumps):
        parts.append(part)
        yield
    return "".join(parts)


def _encoded(value: Any, dumps: Callable[[Any], str]) -> Iterator[str]:
    """The pieces of a value's text. Containers are copied, since they may change between steps."""
    fields = dict(value) if isinstance(value, dict) else _fields(value)
    if fields:
        opening = "{"
        for name, item in fields.items():
            yield f"{opening}{dumps(str(name))}: "
            yield from _encoded(item, dumps)
            opening = ", "
        yield "}"
    elif isinstance(value, list | tuple | set | frozenset) and value and fields is None:
        opening = "["
        for item in tuple(value):
            yield opening
            yield from _encoded(item, dumps)
            opening = ", "
        yield "]"
    else:
        yield dumps(to_json(value))


def _fields(value: Any) -> dict[str, Any] | None:
    if isinstance(value, msgspec.Struct):
        known = msgspec.structs.asdict(value)
        return {name: item for name, item in known.items() if item is not msgspec.UNSET}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    return None


# --- text as values -------------------------------------------------------------------------------


class TooManyValues(ValueError):
    """A text has more values than its reader takes."""


def decode_steps(data: bytes, values: int) -> StepWork[Any]:
    """Decode JSON text of at most `values` values, one value of at most `SCALAR_MAX` characters a
    step. Raises ValueError.
    """
    reader = _JsonReader(data, values)
    found = yield from reader.value(DEPTH_MAX)
    if reader.peek():
        raise ValueError(f"more follows at character {reader.at}")
    return found


class _JsonReader:
    """Reads the values of a text, of which it decodes some at a time."""

    def __init__(self, data: bytes, values: int) -> None:
        self._data, self._taken, self._has_more = data, 0, True
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._text = ""
        """What is decoded and may be needed: the next `SCALAR_MAX` characters, if there are."""
        self._place = self._before = 0
        """The next character, in `_text`; characters before that."""
        self._left, self._most = values, values

    @property
    def at(self) -> int:
        """The number of characters that were read."""
        return self._before + self._place

    def peek(self) -> str:
        """Return the next character that is no space; empty at the end. Raises ValueError."""
        if self._has_more:
            self._fill()
        place = _SPACE.match(self._text, self._place).end()  # type: ignore[union-attr]
        if place == len(self._text) and self._has_more:
            raise ValueError(f"more than {SCALAR_MAX} spaces at character {self.at}")
        self._place = place
        return self._text[place : place + 1]

    def _fill(self) -> None:
        """Have the next `SCALAR_MAX` characters at hand, if there are so many."""
        while self._has_more and len(self._text) - self._place < SCALAR_MAX:
            more = self._data[self._taken : self._taken + SCALAR_MAX]
            self._taken += len(more)
            self._has_more = self._taken < len(self._data)
            self._text = self._text[self._place :] + self._decode(more, not self._has_more)
            self._before, self._place = self.at, 0

    def value(self, depth: int) -> StepWork[Any]:
        """Read a value, whose containers are nested at most so deep. Raises ValueError."""
        opening = self.peek()
        if opening not in ("{", "["):
            return self._scalar()
        if not depth:
            raise ValueError(f"values are nested more than {DEPTH_MAX} deep")
        self._count()
        self._place += 1
        if opening == "[":
            return (yield from self._array(depth - 1))
        return (yield from self._object(depth - 1))

    def _array(self, depth: int) -> StepWork[list[Any]]:
        found: list[Any] = []
        if self.peek() == "]":
            self._place += 1
            return found
        while True:
            if self.peek() in ("{", "["):
                found.append((yield from self.value(depth)))
            else:
                found.append(self._scalar())
            yield
            if self._ends("]"):
                return found

    def _object(self, depth: int) -> StepWork[dict[str, Any]]:
        found: dict[str, Any] = {}
        if self.peek() == "}":
            self._place += 1
            return found
        while True:
            if self.peek() != '"':
                raise ValueError(f"a name is missing at character {self.at}")
            name = self._scalar()
            if self.peek() != ":":
                raise ValueError(f"a colon is missing at character {self.at}")
            self._place += 1
            found[name] = yield from self.value(depth)
            yield
            if self._ends("}"):
                return found

    def _ends(self, closing: str) -> bool:
        """Read a comma, or the end of a container; return whether it was the end."""
        found = self.peek()
        if found not in (",", closing) or not found:
            raise ValueError(f"a comma or {closing} is missing at character {self.at}")
        self._place += 1
        return found == closing

    def _scalar(self) -> Any:
        self._count()
        if self._has_more:
            self._fill()
        try:
            found, place = _DECODER.raw_decode(self._text, self._place)
        except json.JSONDecodeError as error:
            is_cut = self._has_more and error.msg.startswith("Unterminated")
            text = f"a text of more than {SCALAR_MAX} characters" if is_cut else error.msg
            raise ValueError(f"{text} at character {self._before + error.pos}") from error
        self._place = place
        if isinstance(found, str) and not found.isascii():
            found.encode()  # raises UnicodeEncodeError for half of a surrogate pair
        return found

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooManyValues(f"more than {self._most} values")


def _integer(text: str) -> int:
    found = int(text)
    if found not in _INTEGERS:
        raise ValueError(f"{text[:30]} is out of range")
    return found


def _number(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:30]} is out of range")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_no_number)
