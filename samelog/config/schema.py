"""What a table of keys says of each: its kind, default, range and meaning.

The loader takes defaults and ranges from here, and so do the documentation, `samelog config` and
the names of environment variables. Invariant: a key that is in no table is in no configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import Any

VARIABLE_PREFIX = "SAMELOG_"


class Kind(Enum):
    """What a value is, as the documentation calls it."""

    TEXT = "text"
    TEXTS = "list of texts"
    BOOLEAN = "true or false"
    INTEGER = "whole number"
    SECONDS = "seconds"
    SIZE = "size in bytes"
    CHOICE = "one of"
    ADDRESS = "host:port"
    PATH = "path"
    FILE = "path of a file"


class Reload(Enum):
    """What a running process takes over when it changes."""

    NO = "at the next start"
    CONTENTS = "what the file holds, at once"
    YES = "at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key. `default` None: it is required, or `without` says what counts if it is left out.
    `secret`: it is never shown, and comes from no variable: everybody may see an environment.
    """

    kind: Kind
    meaning: str
    default: Any = None
    least: float = 0
    most: float = 0
    choices: type[Enum] | tuple[str, ...] = ()
    without: str = ""
    reload: Reload = Reload.NO
    secret: bool = False

    @property
    def is_required(self) -> bool:
        """Whether a file without it is refused."""
        return self.default is None and not self.without

    @property
    def names(self) -> tuple[str, ...]:
        """What a choice may be."""
        return tuple(str(x.value) if isinstance(x, Enum) else x for x in self.choices)

    @property
    def plain_default(self) -> Any:
        """The default as a file would have it."""
        return self.default.value if isinstance(self.default, Enum) else self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table of a file. `name` is its path (empty: the file itself), `many`: there may be any
    number; `anything`: its keys are the operator's own, and all like this.
    """

    name: str
    meaning: str
    keys: Mapping[str, Key] = field(default_factory=dict)
    many: bool = False
    anything: Key | None = None


Schema = Mapping[str, Section]
"""The tables of one kind of file, by their paths."""


def schema(sections: Iterable[Section]) -> Schema:
    """By path, in this order."""
    return {section.name: section for section in sections}


def default_of(holder: type, name: str) -> Any:
    """The default of a dataclass's field, so that it is written once."""
    found = next(each for each in fields(holder) if each.name == name)
    return found.default_factory() if found.default_factory is not MISSING else found.default


def joined(*parts: str) -> str:
    """The path of a key below a table."""
    return ".".join(part for part in parts if part)


def children(tables: Schema, path: str) -> Iterator[Section]:
    """The tables directly inside one."""
    prefix = f"{path}." if path else ""
    for name, section in tables.items():
        if name and name.startswith(prefix) and "." not in name[len(prefix) :]:
            yield section


def known_keys(tables: Schema, path: str) -> list[str]:
    """Everything that may stand in a table."""
    inside = [section.name.rpartition(".")[2] for section in children(tables, path)]
    return [*tables[path].keys, *inside]


def variable(path: str) -> str:
    """The environment variable of a key: `kafka.listeners[0].advertise` is
    SAMELOG_KAFKA_LISTENERS_0_ADVERTISE.
    """
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]+", "_", path.upper()).strip("_")


def allowed(key: Key) -> str:
    """What its values may be, for people."""
    match key.kind:
        case Kind.INTEGER | Kind.SECONDS:
            return f"{key.kind.value} from {key.least:.15g} to {key.most:.15g}"
        case Kind.SIZE:
            return f"{key.kind.value} from {size(key.least)} to {size(key.most)}"
        case Kind.CHOICE:
            return " or ".join(f'"{name}"' for name in key.names)
    return str(key.kind.value)


def size(count: float) -> str:
    """A number of bytes as people write it."""
    number, units = int(count), ("", "Ki", "Mi", "Gi", "Ti", "Pi")
    power = 0
    while number and number % 1024 == 0 and power < len(units) - 1:
        number, power = number // 1024, power + 1
    return f"{number}{units[power]}"
