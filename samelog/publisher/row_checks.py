"""Refuses records that do not fit their topic's schema before they are appended, where the topic's
`schema.enforce` asks for it.

A record is judged by the version that its mark says, and without a mark by the newest that is
known; whoever would refuse it asks the cluster first whether there is a newer one. Invariant: what
is appended fits a version that the cluster has, as far as one is known; one record that does not
refuses all that came with it (docs/typed.md, T11, T18).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from samelog.admin.known_schemas import KnownSchemas, TopicSchemas
from samelog.typed.misfits import Misfit, RowMisfit
from samelog.typed.schema import NoSchema
from samelog.typed.values.codecs import codec_of
from samelog.typed.versions import FOREIGN, SCHEMA_HEADER, marked_version

if TYPE_CHECKING:
    from typing_extensions import Buffer

GivenValues = Sequence["Buffer | None"]
HeadersColumn = Sequence["Sequence[tuple[str, Buffer | None]] | None"]
ASK_AGAIN_S = 1.0


class RowChecks:
    """Of one publisher. Not thread-safe: the publisher's lock is held."""

    def __init__(self, known: KnownSchemas) -> None:
        self._known = known
        self._asked_at: dict[str, float] = {}

    def forget(self, topic: str) -> None:
        """Ask again at once: the topic was deleted. In any thread."""
        self._asked_at.pop(topic, None)

    def check(self, topic: str, values: GivenValues, headers: HeadersColumn | None) -> None:
        """Raises RowMisfit; nothing, as long as nobody says which schema the topic has."""
        known = self._known.known(topic)
        if known is None and (known := self._ask(topic)) is None:
            return
        misfit = _first_misfit(known, values, headers)
        if misfit is None:
            return
        newer = self._ask(topic)
        if newer is not None and newer.texts != known.texts:
            misfit = _first_misfit(newer, values, headers)
        if misfit is not None:
            raise RowMisfit(misfit)

    def _ask(self, topic: str) -> TopicSchemas | None:
        """What the cluster says, if it was not asked a moment ago, and answers."""
        now = time.monotonic()
        if now - self._asked_at.get(topic, float("-inf")) < ASK_AGAIN_S:
            return None
        try:
            return self._known.learn(topic)
        except NoSchema:
            return None
        finally:
            self._asked_at[topic] = time.monotonic()


def _first_misfit(
    known: TopicSchemas, values: GivenValues, headers: HeadersColumn | None
) -> Misfit | None:
    """The first record that does not fit its version."""
    if not known.newest:
        return None
    if headers is None:
        return _misfit(known, known.newest, values, range(len(values)))
    together: dict[int, list[int]] = {}
    for index, pairs in enumerate(headers):
        together.setdefault(_version(pairs, known), []).append(index)
    found = [_misfit(known, version, values, places) for version, places in together.items()]
    return min((each for each in found if each is not None), key=_index, default=None)


def _index(misfit: Misfit) -> int:
    return misfit.index


def _version(pairs: Sequence[tuple[str, Buffer | None]] | None, known: TopicSchemas) -> int:
    marks = [value for name, value in pairs or () if name == SCHEMA_HEADER]
    if not marks:
        return known.newest
    value = marks[-1]
    return marked_version(None if value is None else bytes(value), known.schemas)


def _misfit(
    known: TopicSchemas, version: int, values: GivenValues, places: Sequence[int]
) -> Misfit | None:
    given = [_as_bytes(values[place]) for place in places]
    schema = known.schemas.get(version)
    if schema is None:
        problem = f"a record with a version that the topic has (1 to {known.newest})"
        found = "another schema's digest" if version == FOREIGN else f"version {version}"
        index = next((n for n, value in enumerate(given) if value is not None), None)
        return None if index is None else Misfit(places[index], "", problem, found)
    misfits = codec_of(schema).check(given)
    if not misfits:
        return None
    first = min(misfits, key=_index)
    return Misfit(places[first.index], first.column, first.expected, first.found)


def _as_bytes(value: Buffer | None) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else bytes(value)
