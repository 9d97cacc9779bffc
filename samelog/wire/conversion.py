"""Converts what a JSON text had to a request, piece by piece.

`msgspec.convert` checks a whole value in one call, which takes tens of milliseconds for a body of
100,000 positions.

Invariant: what is converted, or the text of the error, is what `msgspec.convert` gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, UnsetType, ValidationError

from samelog.format.steps import StepWork

PIECE = 256
"""Values that are converted in one step, unless a single one of a list has more."""
_INDEX = re.compile(r"`\$\[(\d+)\]")


def convert_steps(value: Any, kind: Any) -> StepWork[Any]:
    """Convert a value, a bounded number of its elements a step. Raises msgspec.ValidationError."""
    if _size(value) <= PIECE:
        return msgspec.convert(value, kind)
    yield
    plain, bounds = _unwrapped(kind)
    origin, arguments = get_origin(plain), get_args(plain)
    if isinstance(value, dict) and isinstance(plain, type) and issubclass(plain, Struct):
        return (yield from _struct(value, plain))
    if isinstance(value, dict) and origin is dict:
        _check_length(value, "object", bounds)
        return (yield from _mapping(value, plain))
    if isinstance(value, list) and origin is tuple and arguments[1:] == (...,):
        _check_length(value, "array", bounds)
        return (yield from _sequence(value, arguments[0]))
    return msgspec.convert(value, kind)


def _size(value: Any) -> int:
    """Count the values within a value, up to a little above PIECE."""
    count, waiting = 1, [value]
    while waiting and count <= PIECE:
        each = waiting.pop()
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
        count += len(inner)
        if count <= PIECE:
            waiting += inner
    return count


def _unwrapped(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without what it may be left out as, and the bounds of its values."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *bounds = get_args(kind)
        plain, more = _unwrapped(inner)
        return plain, (*bounds, *more)
    if origin in (Union, UnionType):
        said = [each for each in get_args(kind) if each not in (UnsetType, NoneType)]
        return _unwrapped(said[0]) if len(said) == 1 else (kind, ())
    return kind, ()


def _check_length(value: Sequence[Any] | dict[str, Any], what: str, bounds: Iterable[Any]) -> None:
    """Check an upper bound; a long value is above each lower one. Raises ValidationError."""
    for each in bounds:
        if isinstance(each, Meta) and each.max_length is not None and len(value) > each.max_length:
            raise ValidationError(f"Expected `{what}` of length <= {each.max_length}")


def _struct(value: dict[str, Any], kind: type[Struct]) -> StepWork[Any]:
    fields = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    found = {}
    for name, inner in value.items():
        if name in fields:
            field = fields[name]
            with _located(f".{name}"):
                found[field.name] = yield from convert_steps(inner, field.type)
        elif kind.__struct_config__.forbid_unknown_fields:
            raise ValidationError(f"Object contains unknown field `{name}`")
    for name, field in fields.items():
        if field.required and name not in value:
            raise ValidationError(f"Object missing required field `{name}`")
    try:
        return kind(**found)
    except (TypeError, ValueError) as error:  # of __post_init__
        raise ValidationError(str(error)) from error


def _mapping(value: dict[str, Any], kind: Any) -> StepWork[dict[Any, Any]]:
    found: dict[Any, Any] = {}
    names = list(value)
    for start in range(0, len(names), PIECE):
        some = {name: value[name] for name in names[start : start + PIECE]}
        found |= msgspec.convert(some, kind)
        yield
    return found


def _sequence(value: list[Any], kind: Any) -> StepWork[tuple[Any, ...]]:
    found: list[Any] = []
    for start, some in _pieces(value):
        if len(some) == 1:
            with _located(f"[{start}]"):
                found.append((yield from convert_steps(some[0], kind)))
        else:
            with _located("", start):
                found += msgspec.convert(some, list[kind])
        yield
    return tuple(found)


def _pieces(value: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Cut a list into pieces of at most PIECE values, or a single element; each with its place."""
    start, count = 0, 0
    for place, each in enumerate(value):
        size = _size(each)
        if place > start and count + size > PIECE:
            yield start, value[start:place]
            start, count = place, 0
        count += size
    yield start, value[start:]


@contextmanager
def _located(step: str, start: int = 0) -> Iterator[None]:
    """Have errors name the place in the whole value: behind `step`, or counted from `start`."""
    try:
        yield
    except ValidationError as error:
        text = _INDEX.sub(lambda found: f"`$[{int(found[1]) + start}]", str(error), count=1)
        if step:
            text = text.replace("`$", f"`${step}", 1) if "`$" in text else f"{text} - at `${step}`"
        raise ValidationError(text) from error
