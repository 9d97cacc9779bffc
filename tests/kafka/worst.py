"""The worst requests of each API: every list of a request filled, one list at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from samelog.kafka.apis.produce import OLDEST, produce
from samelog.kafka.codec.descriptions import Field, Structure, structure_of
from samelog.kafka.registry import APIS
from tests.kafka.wire import request

TOPIC = "hostile"
"""The name of each first topic; others are not there."""
ENDS_TOPICS = {20}
"""They come last."""


class WorstRequest(NamedTuple):
    """A version of an API, and the path of the list that has many elements."""

    key: int
    version: int
    path: tuple[str, ...]

    def frame(self, elements: int) -> bytes:
        """The request with its header and length."""
        structure = structure_of("request", self.key, self.version)
        return request(self.key, self.version, _filled(structure, self.path, elements))


def worst_requests() -> Iterator[WorstRequest]:
    """Of the newest version that is served, and of the oldest where that has other lists."""
    for api in sorted(APIS.values(), key=lambda each: each.key in ENDS_TOPICS):
        first = max(api.first, OLDEST if api.key == produce.key else 0)
        seen: set[tuple[str, ...]] = set()
        for version in (api.last, first):
            for path in _arrays(structure_of("request", api.key, version)):
                if path not in seen:
                    seen.add(path)
                    yield WorstRequest(api.key, version, path)


def _arrays(structure: Structure, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all lists of a message."""
    for field in structure.fields:
        if field.is_array:
            yield (*path, field.name)
        if field.structure is not None:
            yield from _arrays(field.structure, (*path, field.name))


def _filled(
    structure: Structure, many: tuple[str, ...], elements: int, number: int = 0
) -> dict[str, Any]:
    """A message with many elements in one list, and one in each other list."""
    return {field.name: _value(field, many, elements, number) for field in structure.fields}


def _value(field: Field, many: tuple[str, ...], elements: int, number: int) -> Any:
    is_on_path = bool(many) and many[0] == field.name
    within = many[1:] if is_on_path else ()

    def element(place: int) -> Any:
        if field.structure is not None:
            return _filled(field.structure, within, elements, place)
        return _plain(field, place)

    if not field.is_array:
        return element(number)
    if is_on_path and not within:
        return [element(place) for place in range(elements)]
    return [element(number)]


def _plain(field: Field, number: int) -> Any:
    """Whole numbers are small, names are of topics that are not there."""
    match field.kind:
        case "string":
            return f"n{number}" if number else TOPIC
        case "bool":
            return False
        case "bytes":
            return b""
        case "uuid":
            return UUID(int=number + 1)
        case "float64":
            return 1.0
        case "error_code":
            return 0
    return number % 100
