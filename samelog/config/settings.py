"""Keys as they count: their values, where these come from, and what changes while a process runs.

Invariant: what two versions of a configuration both leave out, or say alike, is no change, wherever
it is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from samelog.config.document import ConfigDocument
from samelog.config.schema.environment import KeyPath, key_paths
from samelog.config.schema.keys import (
    ConfigKey,
    ConfigTable,
    Inlined,
    Reload,
    Subtable,
    annotations_of,
    keys_of,
)

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
