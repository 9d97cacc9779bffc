"""Environment variables that count instead of keys of a file.

A variable's name follows from the key's path. Invariant: a variable that begins as ours do but
names no key is an error, so that a typo never means "the default"; but for those that Kubernetes
makes for a service whose name begins like that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from samelog.config.schema.keys import ConfigKey, TableSpec, joined
from samelog.config.schema.kinds import did_you_mean
from samelog.config.values import ConfigError

VARIABLE_PREFIX = "SAMELOG_"
CONFIG_VARIABLE = "SAMELOG_CONFIG"
OTHER_VARIABLES = (
    CONFIG_VARIABLE,
    "SAMELOG_DIRECTORY",
    "SAMELOG_CONFIG_CA",
    "SAMELOG_CONFIG_TOKEN_FILE",
    "SAMELOG_STATE_DIR",
)
"""Of commands and the Spark data source (docs/spark.md), and of enrolment (docs/enrolment.md)."""
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|(SERVICE_)?PORT(_\w+)?)")


@dataclass(frozen=True, slots=True)
class KeyPath:
    """Where a key stands in a file: names of tables, numbers in lists of tables, its own name."""

    parts: tuple[str | int, ...]
    key: ConfigKey

    @property
    def name(self) -> str:
        """As messages have it: `kafka.listeners[0].name`."""
        text = ""
        for part in self.parts:
            text = f"{text}[{part}]" if isinstance(part, int) else joined(text, part)
        return text

    def find(self, values: Any) -> Any:
        """What stands there; None: nothing."""
        for part in self.parts:
            if isinstance(values, dict):
                values = values.get(part)
            elif isinstance(values, list) and isinstance(part, int):
                values = values[part]
            else:
                return None
        return values

    def put(self, values: Any, value: object) -> None:
        """Let a value stand there, unless a file has something else than a table on the way:
        whoever reads the file then says so.
        """
        for part in self.parts[:-1]:
            values = values[part] if isinstance(part, int) else values.setdefault(part, {})
            if not isinstance(values, dict | list):
                return
        if isinstance(values, dict):
            values[self.parts[-1]] = value


def key_paths(spec: TableSpec, values: Any, *parts: str | int) -> Iterator[KeyPath]:
    """Every key that may stand in a file which has these lists of tables."""
    given = values if isinstance(values, dict) else {}
    yield from (KeyPath((*parts, name), key) for name, key in spec.keys.items())
    if spec.named is not None:
        yield from (KeyPath((*parts, name), spec.named) for name in given)
    for name, table in spec.tables.items():
        inside = given.get(name)
        if not table.is_many:
            yield from key_paths(table, inside, *parts, name)
        elif isinstance(inside, list):
            for index, each in enumerate(inside):
                yield from key_paths(table, each, *parts, name, index)


def variable(path: str) -> str:
    """The environment variable of a key: `kafka.listeners[0].advertise` is
    SAMELOG_KAFKA_LISTENERS_0_ADVERTISE.
    """
    return VARIABLE_PREFIX + re.sub(r"[^A-Z0-9]+", "_", path.upper()).strip("_")


def variable_names(spec: TableSpec) -> dict[str, str]:
    """By key, with `[]` behind each list of tables: the variable, with N for a number there."""
    return {path: variable(path.replace("[]", ".n")) for path in _variable_keys(spec)}


def apply_variables(
    values: dict[str, Any], environ: Mapping[str, str], file: str, specs: tuple[TableSpec, ...]
) -> dict[str, str]:
    """Put into a file's values what variables say; by key: the variable that gave it.

    `specs`: of this kind of file, then of others, whose variables may be there too. Raises
    ConfigError, which names the file and the variable.
    """
    given = {name: text for name, text in environ.items() if name.startswith(VARIABLE_PREFIX)}
    known = _variable_paths(specs[0], values) if given else {}
    for name, text in given.items():
        if name in known:
            known[name].put(values, known[name].key.kind.from_variable(text))
        else:
            _check_foreign(name, known, file, specs)
    return {known[name].name: name for name in given if name in known}


def _variable_paths(spec: TableSpec, values: Any) -> dict[str, KeyPath]:
    """By variable: the key that it may give."""
    return {variable(path.name): path for path in key_paths(spec, values) if not path.key.secret}


def _check_foreign(
    name: str, known: Iterable[str], file: str, specs: tuple[TableSpec, ...]
) -> None:
    """Raises ConfigError unless a variable names a key of another kind of file alone."""
    if name in OTHER_VARIABLES or _SERVICE_LINK.search(name):
        return
    if _names_key_of(specs[0], name):
        why = "the file has no such table: variables change those that are there, and add none"
        raise ConfigError(f"{file}: environment variable {name}: {why}")
    if not any(_names_key_of(spec, name) for spec in specs[1:]):
        hint = did_you_mean(name, known) or "; docs/configuration.md has all names"
        raise ConfigError(f"{file}: environment variable {name} names no key{hint}")


def _names_key_of(spec: TableSpec, name: str) -> bool:
    patterns = (text.replace("_N_", r"_\d+_") for text in variable_names(spec).values())
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def _variable_keys(spec: TableSpec, path: str = "") -> Iterator[str]:
    """Every key with a variable, with `[]` behind each list of tables."""
    yield from (joined(path, name) for name, key in spec.keys.items() if not key.secret)
    for name, table in spec.tables.items():
        yield from _variable_keys(table, joined(path, name) + ("[]" if table.is_many else ""))
