"""Which members lack a library that checking records takes: any of them may lead one day.

Invariant: nodes are to check a topic's records from now on only if no member says that it lacks
what its schema takes (docs/typed.md, T9).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from samelog.typed.enforcing import is_judged
from samelog.typed.schema import SchemaFormat

ARROW, AVRO = "pyarrow", "fastavro"
REMEDY = "install samelog with the extra 'typed' there"


@lru_cache(maxsize=1)
def lacking() -> tuple[str, ...]:
    """What this member lacks."""
    return tuple(name for name in (ARROW, AVRO) if find_spec(name) is None)


def why_not_checked(presence: Any, state: Any, formats: Iterable[SchemaFormat]) -> str:
    """Which member could not check values of these formats; empty: none says so."""
    wanted = {ARROW, *(AVRO for each in formats if each is SchemaFormat.AVRO)}
    said = {**presence.lacks, presence.number: lacking()}
    for number, lacks in sorted(said.items()):
        missing = [name for name in lacks if name in wanted]
        if missing and number in state.members.by_number:
            name = state.members.by_number[number].name
            return f"{name} could not check records if it led: it has no {' and '.join(missing)}"
    return ""


def why_not_from_now_on(
    presence: Any, state: Any, settings: Mapping[str, str], topic: Any = None
) -> str:
    """The same, if these settings have nodes check the records of a topic, that is new if None."""
    if not is_judged(settings):
        return ""
    newest = [] if topic is None else topic.schemas[-1:]
    formats = [state.schemas.schema_of(each).format for each in newest]
    return why_not_checked(presence, state, formats)
