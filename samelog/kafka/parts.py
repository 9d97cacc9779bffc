"""Handles a long request as several short ones: cuts it into parts, and joins their responses.

For APIs that answer each element of a request by itself. Each part is a whole request, so that the
handler checks rights, catches up and proposes for it as for any other.

Invariant: the response names the elements of the request in their order, each as often as the
request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

PART_ELEMENTS = 50


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the elements of requests and of responses are: a list, or a list within the elements of
    a list, by the names of their fields.
    """

    of_request: tuple[str, ...]
    of_response: tuple[str, ...]
    size: int = PART_ELEMENTS
    """Elements of one part."""

    def cut(self, request: Any) -> Iterator[Any]:
        """The request in parts. A request without a list means everything, and is its only part."""
        name, *within = self.of_request
        elements = getattr(request, name, None)
        if not elements:
            yield request
        elif within:
            for part in self._cut_within(elements, within[0]):
                yield replace(request, **{name: part})
        else:
            for start in range(0, len(elements), self.size):
                yield replace(request, **{name: elements[start : start + self.size]})

    def _cut_within(self, elements: Sequence[Any], within: str) -> Iterator[list[Any]]:
        part: list[Any] = []
        left = self.size
        for each in elements:
            inner = getattr(each, within) or ()
            start = 0
            while True:
                taken = inner[start : start + left]
                part.append(replace(each, **{within: taken}))
                start += len(taken)
                left -= max(1, len(taken))
                if left <= 0:
                    yield part
                    part, left = [], self.size
                if start >= len(inner):
                    break
        if part:
            yield part


class JoinedResponse:
    """Joins the responses to the parts of a request, in order."""

    def __init__(self, parts: Parts) -> None:
        self._name, *within = parts.of_response
        self._within = within[0] if within else ""
        self._first: Any = None
        self._elements: list[Any] = []
        self._inner: list[list[Any]] = []
        """For each element, its own elements."""

    def add(self, response: Any) -> None:
        """Add the response to the next part."""
        if self._first is None:
            self._first = response
        for each in getattr(response, self._name):
            if not self._within:
                self._elements.append(each)
                continue
            bare = replace(each, **{self._within: ()})
            if not self._elements or self._elements[-1] != bare:
                self._elements.append(bare)
                self._inner.append([])
            self._inner[-1].extend(getattr(each, self._within))

    def response(self) -> Any:
        """The response to the whole request."""
        elements = self._elements
        if self._within:
            pairs = zip(elements, self._inner, strict=True)
            elements = [replace(each, **{self._within: inner}) for each, inner in pairs]
        return replace(self._first, **{self._name: elements})
